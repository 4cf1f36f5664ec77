"""cloudpickle with support for dataclasses, and for classes that msgspec has used.

A dataclass that is pickled by value carries markers of the module `dataclasses`, such as
`dataclasses.MISSING` for "no default". They are compared by identity, so a copy of a marker would
be mistaken for a default. They are pickled by name.

msgspec caches data about a dataclass or named tuple in an attribute of the class, which cannot be
pickled and would prevent the class from being pickled by value. msgspec recreates it on demand.
cloudpickle cannot see the fields of msgspec's own structs, so a struct would lose its fields.

Functions of a script or a notebook are pickled by value, and the file that they come from need not
exist where they are unpickled. A notebook's cell has no file at all. `source_lines` returns their
source, and `know_sources` makes it known to tracebacks of another process.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
from collections.abc import Iterable, Mapping
from io import BytesIO
from types import CodeType
from typing import Any, Final

import cloudpickle
import msgspec

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

    #: the files of the code that was pickled by value
    files: set[str]

    def __init__(self, file: Any, protocol: int | None = None) -> None:
        """Pickle into a file."""
        super().__init__(file, protocol=protocol)
        self.files = set()

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object; called for every object that is not a plain value."""
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
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


def dumps(value: Any, files: set[str] | None = None) -> bytes:
    """Return the value as a pickle of protocol 5; add the files of its code to ``files``."""
    buffer = BytesIO()
    pickler = Pickler(buffer, protocol=5)
    pickler.dump(value)
    if files is not None:
        files |= pickler.files
    return buffer.getvalue()


def source_lines(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the lines of files, as tracebacks of this process show them."""
    found = {file: tuple(linecache.getlines(file)) for file in files}
    return {file: lines for file, lines in found.items() if lines}


def know_sources(sources: Mapping[str, tuple[str, ...]]) -> None:
    """Let tracebacks of this process show these lines, unless the files exist here."""
    for file, lines in sources.items():
        if not os.path.exists(file):
            # NB: an entry without a time is never compared with a file
            size = sum(map(len, lines))
            linecache.cache[file] = (size, None, list(lines), file)


def _goes_by_value(cls: type) -> bool:
    return cls.__module__ == "__main__" or "<locals>" in cls.__qualname__
