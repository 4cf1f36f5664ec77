"""Pickled values looked at without running any code of theirs.

To unpickle is to call whatever the bytes name. Here they can name what makes plain values: dates,
decimals, sets, rows and the like. Every other class or function is replaced by one that does
nothing but remember what it was called with: an `Unknown`. Nothing is imported.
"""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any, Final, NoReturn

from holdfast.state.errors import PickledStateError

__all__ = ["Unknown", "harmless_loads", "holds_unknown"]

#: what plain values are made of, by the module that pickles name
_KNOWN: Final = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"OrderedDict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "holdfast.common.time": {"Instant"},
    "holdfast.common.types": {"Row", "RowKind", "_restore"},
    "holdfast.state.harmless": {"_unknown"},
    "uuid": {"SafeUUID", "UUID"},
    "zoneinfo": {"ZoneInfo._unpickle"},
}
#: what cloudpickle makes classes with that live in the main program; the second argument is a name
_CLASS_MAKERS: Final = {"_make_skeleton_class", "_make_skeleton_enum"}


class Unknown:
    """An object of a class that was not looked for.

    Two are equal if they were pickled alike. It has no key group, since that is for its class to
    say.
    """

    class_name = "?"

    def __new__(cls, *args: Any, **kwargs: Any) -> Unknown:
        """Remember what it is made of."""
        self = super().__new__(cls)
        self._parts = [args, kwargs, None, []]
        return self

    _parts: list[Any]

    def __setstate__(self, state: Any) -> None:
        self._parts[2] = state

    def append(self, item: Any) -> None:
        """Remember an item of a list."""
        self._parts[3].append(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._parts[3].append((key, value))

    def __call__(self, *args: Any, **kwargs: Any) -> Unknown:
        return _class_of(f"{self!r}")(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unknown, (self.class_name, self._parts)

    def __getstate__(self) -> NoReturn:
        message = (
            f"the key {self!r} is pickled, and which key group it belongs to is for its class to "
            "say; read it with trusted=True, where the class can be imported"
        )
        raise PickledStateError(message)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unknown):
            return NotImplemented
        return (self.class_name, self._parts) == (other.class_name, other._parts)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        args, kwargs, state, items = self._parts
        slots = isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict)
        fields = {**(state[0] or {}), **state[1]} if slots else state
        if isinstance(fields, dict):
            kwargs = {**kwargs, **fields}
        elif fields is not None:
            args = (*args, fields)
        told = [*map(repr, (*args, *items)), *(f"{name}={v!r}" for name, v in kwargs.items())]
        return f"{self.class_name.rpartition('.')[2]}({', '.join(told)})"


def harmless_loads(data: bytes | memoryview) -> Any:
    """Return what is pickled, with an `Unknown` for all that is not plain."""
    try:
        return _Unpickler(BytesIO(data)).load()
    except Exception as error:
        message = (
            f"pickled values cannot be read without their classes: {type(error).__name__}: "
            f"{error}; read them with trusted=True, where the classes can be imported"
        )
        raise PickledStateError(message) from error


def holds_unknown(data: bytes | memoryview) -> bool:
    """Return whether an `Unknown` is in what is pickled there."""
    return __name__.encode() in bytes(data)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _KNOWN.get(module, ()):
            return super().find_class(module, name)
        if name in _CLASS_MAKERS:
            return lambda *args: _class_of(str(args[1]))
        return _class_of(f"{module}.{name}")


def _class_of(name: str) -> type[Unknown]:
    return type("Unknown", (Unknown,), {"class_name": name, "__slots__": ()})


def _unknown(name: str, parts: list[Any]) -> Unknown:
    unknown = _class_of(name)()
    unknown._parts = parts
    return unknown
