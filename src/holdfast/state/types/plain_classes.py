"""The classes whose pickled objects are plain values, and how each is created from its parts.

Pickles of protocol 4 and later are supported; Holdfast does not write earlier ones.

A maker takes the parts of a pickled object: the arguments of a call, the keyword arguments, the
state, and the items that were added. It checks them, since the pickle may be untrusted: an argument
of another type could mean something else (`bytearray` of a number), or never finish (`Fraction` of
a text such as 1e999999999).
"""

from __future__ import annotations

import datetime
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

from holdfast.common.time import Instant
from holdfast.common.types import Row, RowKind, _restore

Maker = Callable[[tuple[Any, ...], dict[str, Any], Any, list[Any]], Any]

_NOTHING: Final = type(None)
_ZONES: Final = (datetime.timezone, ZoneInfo, _NOTHING)
_FRACTION: Final = re.compile(r"-?\d{1,4000}(/\d{1,4000})?", re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,3}", re.ASCII)


def _checked(args: tuple[Any, ...], *types: type | tuple[type, ...], least: int = 0) -> None:
    """Raise an error unless arguments have these types; those after ``least`` are optional."""
    fits = least <= len(args) <= len(types)
    if not fits or not all(isinstance(a, t) for a, t in zip(args, types, strict=False)):
        given = ", ".join(type(a).__name__ for a in args) or "none"
        message = f"the arguments of an object have unexpected types: {given}"
        raise TypeError(message)


def _bare(kwargs: dict[str, Any], state: Any, items: list[Any]) -> None:
    if kwargs or state is not None or items:
        message = "an object has a state or items, and its class has none"
        raise TypeError(message)


def _of(make: Callable[..., Any], *types: type | tuple[type, ...], least: int = 0) -> Maker:
    """Return a maker that calls ``make``, with arguments of these types only."""

    def maker(args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, items: list[Any]) -> Any:
        _bare(kwargs, state, items)
        _checked(args, *types, least=least)
        return make(*args)

    return maker


def _fraction(first: Any, second: int = 1) -> Fraction:
    if isinstance(first, str):
        if not _FRACTION.fullmatch(first):
            message = "a fraction does not consist of two integers"
            raise ValueError(message)
        return Fraction(first)
    return Fraction(first, second)


def _zone(key: str, from_cache: Any = True) -> ZoneInfo:
    # NB: the key of a time zone is used as the path of a file
    if not _ZONE.fullmatch(key):
        message = f"{key[:40]!r} is not the name of a time zone"
        raise ValueError(message)
    return ZoneInfo(key)


def _row(names: Any, values: list[Any], kind: int = 0) -> Row:
    if names is not None and not all(type(name) is str for name in names):
        message = "a field name of a row is not a str"
        raise TypeError(message)
    return _restore(names, values, kind)


def _uuid(args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, items: list[Any]) -> UUID:
    number, safe = state["int"], state.get("is_safe", SafeUUID.unknown)
    if args or kwargs or items or type(number) is not int:
        message = "a UUID does not consist of one integer"
        raise TypeError(message)
    return UUID(int=number, is_safe=safe if isinstance(safe, SafeUUID) else SafeUUID(safe))


def _deque(args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, items: list[Any]) -> Any:
    _bare(kwargs, state, [])
    _checked(args, (list, tuple), (int, _NOTHING))
    return deque([*(args[0] if args else ()), *items], args[1] if len(args) > 1 else None)


def _ordered(args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, items: list[Any]) -> Any:
    _bare(kwargs, state, [])
    _checked(args, list)
    return OrderedDict([*map(tuple, args[0] if args else ()), *items])


_int_or_none: Final = (int, _NOTHING)

#: by module and name, as pickles have them
MAKERS: Final[dict[tuple[str, str], Maker]] = {
    ("builtins", "bytearray"): _of(bytearray, bytes),
    ("builtins", "complex"): _of(complex, (int, float), (int, float)),
    ("builtins", "frozenset"): _of(frozenset, (list, tuple)),
    ("builtins", "range"): _of(range, int, int, int, least=1),
    ("builtins", "set"): _of(set, (list, tuple)),
    ("builtins", "slice"): _of(slice, _int_or_none, _int_or_none, _int_or_none, least=1),
    ("collections", "OrderedDict"): _ordered,
    ("collections", "deque"): _deque,
    ("datetime", "date"): _of(datetime.date, bytes, least=1),
    ("datetime", "datetime"): _of(datetime.datetime, bytes, _ZONES, least=1),
    ("datetime", "time"): _of(datetime.time, bytes, _ZONES, least=1),
    ("datetime", "timedelta"): _of(datetime.timedelta, int, int, int),
    ("datetime", "timezone"): _of(datetime.timezone, datetime.timedelta, str, least=1),
    ("decimal", "Decimal"): _of(Decimal, str, least=1),
    ("fractions", "Fraction"): _of(_fraction, (str, int), int, least=1),
    ("holdfast.common.time", "Instant"): _of(Instant, int, int, least=2),
    ("holdfast.common.types", "RowKind"): _of(RowKind, int, least=1),
    ("holdfast.common.types", "_restore"): _of(_row, (tuple, _NOTHING), list, int, least=2),
    ("uuid", "SafeUUID"): _of(SafeUUID, (int, _NOTHING), least=1),
    ("uuid", "UUID"): _uuid,
    ("zoneinfo", "ZoneInfo._unpickle"): _of(_zone, str, object, least=1),
}
