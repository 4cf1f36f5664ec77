"""Whether what a job tells, which has gone on from a golden file, is what its state must be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from tests.golden.program import (
    COLLECTION,
    KEYS,
    LINES,
    LISTED,
    LOOP,
    LOOP_LISTED,
    NUMBERS,
    PARALLELISM,
    SEQUENCE,
    SETTINGS,
    Place,
    expected_keyed,
    expected_timers,
)

#: what is told, by what it is and by its place
Told = dict[str, dict[Any, Any]]

_MAKERS = list(range(PARALLELISM))


def by_kind(records: Iterable[tuple[str, Any, Any]]) -> Told:
    """Sort what a job tells; only what comes from running states may come more than once."""
    found: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    for kind, place, what in records:
        assert kind in ("keyed", "number") or place not in found[kind], f"{kind} {place} told twice"
        found[kind][place] = what
    return found


def check_told(found: Told, operators: Collection[str] = tuple(KEYS), parallelism: int = 2) -> None:
    """Check everything that `program.streams` tells."""
    read = set(found["number"])
    _check_positions(read)
    _check_keyed(found["keyed"], operators)
    assert found["timer"] == expected_timers()
    _check_operator_state(found["operator"], set(NUMBERS) - read, parallelism)
    _check_listed(found["listed"], parallelism)


def _check_positions(read: set[int]) -> None:
    """Each source goes on after the checkpoint: it gives the rest of its numbers."""
    half = len(SEQUENCE) // 2
    for part in (SEQUENCE[:half], SEQUENCE[half:], COLLECTION, LINES, LOOP, LOOP_LISTED):
        rest = sorted(read & set(part))
        assert part[0] < rest[0] <= part[-1], f"the source of {part} read from {rest[0]} on"
        assert rest == list(range(rest[0], part[-1] + 1))


def _check_keyed(found: dict[Any, Any], operators: Collection[str]) -> None:
    expected = expected_keyed(operators)
    assert found.keys() == expected.keys()
    for place, states in expected.items():
        for name, value in states.items():
            assert exactly(found[place][name]) == exactly(value), f"{name} of {place}"


def exactly(value: Any) -> tuple[Any, str]:
    """For comparing types as well: 1 is not True, and a list is not a tuple."""
    return value, type(value).__name__


def _check_operator_state(found: dict[int, Any], before: set[int], parallelism: int) -> None:
    assert found.keys() == set(range(parallelism))
    told = found.values()
    assert sorted(n for states in told for n in states["numbers"]) == sorted(before)
    places = [place for states in told for place in states["places"]]
    assert sorted(places, key=repr) == sorted((Place("w", n) for n in before), key=repr)
    raw = [part for states in told for part in states["raw"]]
    assert sorted(raw) == [b"raw %d" % subtask for subtask in _MAKERS]
    for subtask, states in found.items():
        assert states["subtasks"] == _MAKERS
        assert states["settings"] == SETTINGS
        if parallelism == PARALLELISM:
            assert states["places"] == [Place("w", n) for n in states["numbers"]]
            assert states["raw"] == (b"raw %d" % subtask,)


def _check_listed(found: dict[int, Any], parallelism: int) -> None:
    expected = {subtask: [subtask, *LISTED] for subtask in _MAKERS}
    if parallelism == PARALLELISM:
        assert found == expected
    else:
        assert _parts(found) == _parts(expected)


def _parts(lists: dict[int, list[Any]]) -> list[str]:
    """The elements of all subtasks, in one order."""
    return sorted(repr(element) for elements in lists.values() for element in elements)
