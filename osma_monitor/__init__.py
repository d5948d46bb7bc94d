"""A runtime safety monitor for learned robot policies."""

from pkgutil import extend_path

# The generated messages (osma_monitor.msg) may live in a prefix of their own; both folders are one package.
__path__ = extend_path(__path__, __name__)

__version__ = "0.1.0"
