"""cloudpickle for classes that msgspec has seen.

msgspec keeps what it knows of a dataclass or named tuple in an attribute of the class, which cannot
be pickled and so would keep the class from being pickled by value. It makes it anew when needed.
Its own structs keep their fields where cloudpickle does not see them, and would arrive without.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

import cloudpickle
import msgspec

__all__ = ["Pickler", "dumps"]

_CACHE: Final = "__msgspec_cache__"
_STRUCTS: Final = type(msgspec.Struct)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes the attribute off before a class is pickled, and refuses structs by value."""

    def reducer_override(self, obj: Any) -> Any:
        """Called for every object that is no plain value."""
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
