"""Two savepoints compared, against a comparison of two dicts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Types
from holdfast.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from holdfast.savepoint import KeyedState, OperatorState, Savepoint, SavepointWriter, compare
from tests.savepoint.jobs import expiring

STATES = st.dictionaries(st.integers(0, 6), st.integers(0, 2), max_size=6)


def made(directory: Path, values: dict[int, int], elements: list[int]) -> Savepoint:
    writer = SavepointWriter().with_operator(
        "op",
        KeyedState(ValueStateDescriptor("typed", Types.LONG()), values),
        KeyedState(MapStateDescriptor("map"), {k: {"v": v} for k, v in values.items()}),
        KeyedState(expiring(ValueStateDescriptor("expiring")), values),
        OperatorState(ListStateDescriptor("list"), elements),
        OperatorState(MapStateDescriptor("rules"), values),
    )
    return Savepoint.read(writer.write(directory))


def expected(old: dict[int, Any], new: dict[int, Any]) -> dict[int, tuple[str, Any, Any]]:
    changes = {}
    for key in old.keys() | new.keys():
        if key not in old:
            changes[key] = ("added", None, new[key])
        elif key not in new:
            changes[key] = ("removed", old[key], None)
        elif old[key] != new[key]:
            changes[key] = ("changed", old[key], new[key])
    return changes


@given(STATES, STATES, st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
@settings(max_examples=15, deadline=None)
def test_differences(
    old: dict[int, int], new: dict[int, int], left: list[int], right: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before, after = made(Path(folder) / "a", old, left), made(Path(folder) / "b", new, right)
        changes = {(c.operator, c.state): c for c in compare(before, after)}
        wanted = expected(old, new)
        for state in ("typed", "map", "expiring", "rules"):
            change = changes["op", state]
            values = [(c, (b, a)) for c, b, a in wanted.values()]
            assert (change.added, change.removed, change.changed) == tuple(
                sum(c == kind for c, _ in values) for kind in ("added", "removed", "changed")
            )
            assert bool(change) == bool(wanted)
        rows = {
            r["key"]: (r["change"], r["before"], r["after"]) for r in changes["op", "typed"].rows
        }
        assert rows == wanted
        table = changes["op", "map"].rows.to_arrow()
        assert sorted(table.column("key").to_pylist()) == sorted(wanted)
        listed = changes["op", "list"].rows.to_pylist()
        assert sorted(r["after"] for r in listed if r["change"] == "added") == _more(right, left)
        assert sorted(r["before"] for r in listed if r["change"] == "removed") == _more(left, right)


def _more(one: list[int], other: list[int]) -> list[int]:
    left = list(other)
    return sorted(x for x in sorted(one) if x not in left or left.remove(x))  # type: ignore[func-returns-value]


def test_operators_that_only_one_has(tmp_path: Path) -> None:
    state = KeyedState(ValueStateDescriptor("s", int), {"a": 1, "b": 2})
    one = Savepoint.read(SavepointWriter().with_operator("x", state).write(tmp_path / "x"))
    other = Savepoint.read(SavepointWriter().with_operator("y", state).write(tmp_path / "y"))
    assert [(c.operator, c.added, c.removed) for c in compare(one, other)] == [
        ("x", 0, 2),
        ("y", 2, 0),
    ]
