"""Durations and instants: `Duration`, `Time`, `Instant`, and conversion to `timedelta`.

Wherever a duration is expected, Holdfast accepts a `datetime.timedelta`, a `Duration`, a `Time`, an
int of milliseconds, or a text such as ``"10 s"``. Only `to_timedelta` and `to_millis` convert them.
"""

from __future__ import annotations

import operator
import re
import time
from datetime import timedelta
from fractions import Fraction
from typing import Final, TypeAlias

import msgspec

__all__ = [
    "Duration",
    "DurationLike",
    "Instant",
    "Time",
    "format_duration",
    "parse_duration",
    "to_millis",
    "to_timedelta",
    "wall_clock",
]

_MICRO: Final = timedelta(microseconds=1)

#: nanoseconds in one unit, longest unit first
_NANOS: Final = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "min": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_SPELLINGS: Final = {
    "d": "d day days",
    "h": "h hour hours",
    "min": "m min minute minutes",
    "s": "s sec secs second seconds",
    "ms": "ms milli millis millisecond milliseconds",
    "us": "us \u00b5s \u03bcs micro micros microsecond microseconds",
    "ns": "ns nano nanos nanosecond nanoseconds",
}
_UNITS: Final = {word: _NANOS[u] for u, words in _SPELLINGS.items() for word in words.split()}
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z\u00b5\u03bc]*)")
_ISO: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


class Duration:
    """A length of time with nanosecond resolution, such as 34.5 seconds."""

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        self._nanos = operator.index(nanos)

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration of that many days of 24 hours."""
        return Duration(operator.index(days) * _NANOS["d"])

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration of that many hours."""
        return Duration(operator.index(hours) * _NANOS["h"])

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration of that many minutes."""
        return Duration(operator.index(minutes) * _NANOS["min"])

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a duration of that many seconds."""
        return Duration(operator.index(seconds) * _NANOS["s"])

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration of that many milliseconds."""
        return Duration(operator.index(millis) * _NANOS["ms"])

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration of that many nanoseconds."""
        return Duration(nanos)

    def to_nanos(self) -> int:
        """Return the whole length in nanoseconds."""
        return self._nanos

    def to_millis(self) -> int:
        """Return the length in whole milliseconds, rounded down."""
        return self._nanos // _NANOS["ms"]

    def to_timedelta(self) -> timedelta:
        """Return the length as a `timedelta`, rounded down to microseconds."""
        return timedelta(microseconds=self._nanos // _NANOS["us"])

    def __eq__(self, other: object) -> bool:
        return self._nanos == other._nanos if isinstance(other, Duration) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._nanos < other._nanos if isinstance(other, Duration) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._nanos <= other._nanos if isinstance(other, Duration) else NotImplemented

    def __hash__(self) -> int:
        return hash((Duration, self._nanos))

    def __repr__(self) -> str:
        return f"Duration({_format_nanos(self._nanos)})"

    def __reduce__(self) -> tuple[type[Duration], tuple[int]]:
        return Duration, (self._nanos,)


class Instant(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A point on the time line: seconds since the epoch, and nanoseconds after them.

    ``nanos`` counts forward from ``seconds`` and is in [0, 1e9), also before the epoch.
    """

    seconds: int
    nanos: int

    def to_epoch_milli(self) -> int:
        """Return the milliseconds since the epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS["ms"]

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant that many milliseconds after the epoch."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS["ms"])

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


class Time:
    """A duration in milliseconds, for windows."""

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = operator.index(milliseconds)

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return that many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return that many seconds."""
        return Time(operator.index(seconds) * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return that many minutes."""
        return Time(operator.index(minutes) * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return that many hours."""
        return Time(operator.index(hours) * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Return that many days of 24 hours."""
        return Time(operator.index(days) * 86_400_000)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Time):
            return NotImplemented
        return self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash((Time, self._milliseconds))

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        return f"Time({self._milliseconds} ms)"


DurationLike: TypeAlias = timedelta | Duration | Time | int | str


def wall_clock() -> int:
    """Return the time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def to_timedelta(value: DurationLike) -> timedelta:
    """Return any duration as a `timedelta`; an int is in milliseconds.

    A `Duration` finer than a microsecond is rounded down.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, Duration):
        return value.to_timedelta()
    if isinstance(value, Time):
        return timedelta(milliseconds=value.to_milliseconds())
    if isinstance(value, int) and not isinstance(value, bool):
        return timedelta(milliseconds=value)
    if isinstance(value, str):
        return timedelta(microseconds=_parse_nanos(value) // _NANOS["us"])
    message = (
        "a duration must be a timedelta, Duration, Time, int of milliseconds, or text such as "
        f"'10 s'; got {type(value).__name__}: {value!r}"
    )
    raise TypeError(message)


def to_millis(value: DurationLike) -> int:
    """Return any duration in milliseconds; a `timedelta` is rounded as in PyFlink."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Duration):
        return value.to_millis()
    return round(Fraction(to_timedelta(value) // _MICRO, 1000))


def parse_duration(value: DurationLike) -> timedelta:
    """Return the duration of a configuration value.

    Text is a number and a unit: ``"10 s"``, ``"500ms"``, ``"1 min"``, ``"1.5 h"``; milliseconds if
    there is no unit; or ISO 8601, ``"PT10S"``. Other values are converted by `to_timedelta`.
    """
    return to_timedelta(value)


def format_duration(value: timedelta) -> str:
    """Return the shortest text that `parse_duration` reads back, such as ``"10 s"``."""
    return _format_nanos(value // _MICRO * _NANOS["us"])


def _parse_nanos(text: str) -> int:
    stripped = text.strip()
    if stripped[:1] in ("P", "p"):
        return _parse_iso_nanos(text, stripped)
    match = _AMOUNT.fullmatch(stripped.lower())
    if match is None:
        message = f"not a duration: {text!r}; write a number and a unit, such as '10 s' or '500 ms'"
        raise ValueError(message)
    amount, unit = match.groups()
    factor = _UNITS.get(unit or "ms")
    if factor is None:
        message = f"not a duration: {text!r} has the unknown unit {unit!r}; use {', '.join(_NANOS)}"
        raise ValueError(message)
    return int(Fraction(amount) * factor)


def _parse_iso_nanos(text: str, stripped: str) -> int:
    match = _ISO.fullmatch(stripped)
    parts = match.groups() if match else (None,)
    if not any(parts):
        message = f"not a duration: {text!r} is not of the form 'P1DT2H3M4S'"
        raise ValueError(message)
    scales = (_NANOS["d"], _NANOS["h"], _NANOS["min"], _NANOS["s"])
    return int(sum(Fraction(p) * s for p, s in zip(parts, scales, strict=True) if p))


def _format_nanos(nanos: int) -> str:
    unit = next(u for u, size in _NANOS.items() if nanos % size == 0) if nanos else "ms"
    return f"{nanos // _NANOS[unit]} {unit}"
