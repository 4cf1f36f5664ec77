"""Entries of state with a time-to-live: pairs of a value and the time of its last access."""

from __future__ import annotations

from typing import Any

from holdfast.common.time import wall_clock


def split_times(kind: str, entry: Any) -> tuple[Any, Any]:
    """Return an entry without its times, and the times: a single one, a list, or a dict."""
    if kind == "list":
        return [value for value, _ in entry], [time for _, time in entry]
    if kind == "map":
        values = {key: value for key, (value, _) in entry.items()}
        return values, {key: time for key, (_, time) in entry.items()}
    value, time = entry
    return value, time


def with_times(kind: str, value: Any, times: Any = None) -> Any:
    """Return an entry with times; a value without a time gets the newest one, or else now."""
    if kind == "list":
        same = isinstance(times, list) and len(times) == len(value)
        each = times if same else [_newest(times)] * len(value)
        return list(zip(value, each, strict=True))
    if kind == "map":
        entries = dict(value)
        given = dict(times) if isinstance(times, dict | list) else {}
        newest = _newest(times)
        return {key: (part, given.get(key, newest)) for key, part in entries.items()}
    return value, _newest(times)


def _newest(times: Any) -> int:
    if isinstance(times, int):
        return times
    pairs = times.values() if isinstance(times, dict) else times or ()
    found = [time[1] if isinstance(time, tuple) else time for time in pairs]
    return max(found, default=None) or wall_clock()
