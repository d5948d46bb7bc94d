"""How recorded bytes become messages, without ROS: definitions out of the bag, else the usual ones, through
``rosbags``.

Each type is decoded with the definition that was recorded with it, so that a bag of an older version of our
messages (fields are only ever appended) still reads. Without a usable definition the common ROS types and our own
``msg/*.msg`` serve.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from osma_monitor.io.errors import InputError
from osma_monitor.resources import config_path

Encoding = Literal["cdr", "ros1"]
Decode = Callable[[bytes], Any]
NO_DEFINITION = MessageDefinition(MessageDefinitionFormat.NONE, "")
PACKAGE = "osma_monitor"


@cache
def own_definitions() -> dict[str, str]:
    """Type name -> text of each of our message files."""
    folder = config_path().parent / "msg"
    texts = {f"{PACKAGE}/msg/{path.stem}": path.read_text() for path in sorted(folder.glob("*.msg"))}
    if not texts:
        raise InputError(f"{folder}: the message definitions of {PACKAGE} are missing; install the package again")
    return texts


@cache
def known_types(encoding: Encoding = "cdr") -> Typestore:
    """The common types of ROS 2 (or ROS 1) and ours."""
    store = get_typestore(Stores.ROS2_JAZZY if encoding == "cdr" else Stores.ROS1_NOETIC)
    types = {}
    for name, text in own_definitions().items():
        types.update(get_types_from_msg(text, name))
    store.register(types)
    return store


def _embedded(name: str, definition: MessageDefinition) -> Typestore | None:
    """A type store of what the bag says; None when it says nothing usable."""
    if definition.format == MessageDefinitionFormat.NONE or not definition.data.strip():
        return None
    types: dict[str, Any] = {}
    try:
        if definition.format == MessageDefinitionFormat.MSG:
            types.update(get_types_from_msg(definition.data, name))
        else:
            bar = "=" * 80 + "\n"
            texts = [part.split("\n", 1)[1] for part in definition.data.split(bar)[1:]] or [definition.data]
            for text in texts:
                types.update(get_types_from_idl(text))
        store = get_typestore(Stores.EMPTY)
        store.register(types)
        return store if name in store.fielddefs else None
    except Exception:  # the parsers raise whatever the text makes them raise
        return None


@cache
def decoder(name: str, definition: MessageDefinition, encoding: Encoding = "cdr") -> Decode | None:
    """A function from the bytes of a message of type ``name`` to the message; None when nothing says how it is laid
    out."""
    store = _embedded(name, definition)
    if store is None:
        store = known_types(encoding)
        if name not in store.fielddefs:
            return None
    if encoding == "ros1":
        return lambda data: store.deserialize_ros1(data, name)
    return lambda data: store.deserialize_cdr(data, name)


@cache
def as_known(name: str, definition: MessageDefinition) -> bool:
    """Whether the recorded definition of ``name`` lays it out as ours does, nested types included."""
    known = known_types("cdr")
    if name not in known.fielddefs:
        return False
    store = _embedded(name, definition)
    return store is None or bool(store.hash_rihs01(name) == known.hash_rihs01(name))
