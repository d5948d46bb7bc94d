"""Make a development environment complete at the start of Python, before any ROS library loads.

`make setup` copies this file into the environment's site-packages, beside a .pth file that imports it. Three things
must be known when the process starts: where the shared libraries of the ROS wheels and of this package's messages are
(the dynamic linker reads LD_LIBRARY_PATH once, so a wrong one means starting Python again), which ament prefixes there
are, and where the source tree and the generated Python of the messages are. The wheels' own hook does the first part
for itself alone, in no fixed order, and is fooled by a guard variable inherited from another environment; this one runs
before it.
"""

import os
import sys
from pathlib import Path

WHEELS_GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"


def front(wanted: list[str], current: str) -> str:
    """Return a search path that begins with `wanted` and goes on with the rest of `current`."""
    rest = [part for part in current.split(os.pathsep) if part and part not in wanted]
    return os.pathsep.join([*wanted, *rest])


def activate(source: str, message_prefix: str) -> None:
    """Set the search paths of this process, starting Python again if its library path has to change."""
    bundled = sorted(Path(__file__).parent.glob("ros_*.libs"))
    library_folders = [f"{message_prefix}/lib", f"{sys.prefix}/lib", *map(str, bundled)]
    ament_path = front([message_prefix, sys.prefix], os.environ.get("AMENT_PREFIX_PATH", ""))
    os.environ["AMENT_PREFIX_PATH"] = ament_path
    generated = f"{message_prefix}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    # The source first: its osma_monitor/__init__.py joins both folders, the generated one is empty.
    sys.path.extend(folder for folder in (source, generated) if folder not in sys.path)

    current = os.environ.get("LD_LIBRARY_PATH", "")
    library_path = front(library_folders, current)
    os.environ[WHEELS_GUARD] = "1"
    if library_path != current and sys.executable:
        os.environ["LD_LIBRARY_PATH"] = library_path
        os.execv(sys.executable, sys.orig_argv)
