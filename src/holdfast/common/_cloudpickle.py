"""cloudpickle for dataclasses, and for classes that msgspec has seen.

A dataclass that is pickled by value carries markers of the module `dataclasses`, such as
`dataclasses.MISSING` for "no default". They are compared by identity, so a copy of a marker would
be taken for a default. They are pickled by name.

msgspec keeps what it knows of a dataclass or named tuple in an attribute of the class, which cannot
be pickled and so would keep the class from being pickled by value. It makes it anew when needed.
Its own structs keep their fields where cloudpickle does not see them, and would arrive without.
"""

from __future__ import annotations

import dataclasses
from io import BytesIO
from typing import Any, Final

import cloudpickle
import msgspec

__all__ = ["Pickler", "dumps"]

_CACHE: Final = "__msgspec_cache__"
_STRUCTS: Final = type(msgspec.Struct)
#: by identity, the names of the markers. Those of other libraries, such as msgspec's `UNSET` and
#: `NODEFAULT`, are pickled by name anyway.
_MARKERS: Final = {
    id(value): name
    for name, value in vars(dataclasses).items()
    if type(value).__module__ == dataclasses.__name__
}


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles markers by name, classes without msgspec's attribute, and no structs by value."""

    def reducer_override(self, obj: Any) -> Any:
        """Called for every object that is no plain value."""
        marker = _MARKERS.get(id(obj))
        if marker is not None:
            return marker
        if isinstance(obj, type) and _CACHE in vars(obj):
            delattr(obj, _CACHE)
        if isinstance(obj, _STRUCTS) and _goes_by_value(obj):
            message = (
                f"the msgspec.Struct {obj.__qualname__} cannot be sent to other processes from "
                "where it is defined; put it into a module, or make it a dataclass"
            )
            raise TypeError(message)
        return super().reducer_override(obj)


def dumps(value: Any) -> bytes:
    """Return the value as a pickle of protocol 5."""
    buffer = BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def _goes_by_value(cls: type) -> bool:
    return cls.__module__ == "__main__" or "<locals>" in cls.__qualname__
