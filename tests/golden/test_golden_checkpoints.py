"""Checkpoints of released versions, and of this one, can be gone on from with every state right.

If this fails after a change of the format that was meant: add a way to read what was released, and
write the files of an unreleased version anew with ``python -m tests.golden.make``.
"""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.golden.make import GOLDEN
from tests.golden.program import (
    COLLECTION,
    JOB,
    LINES,
    LISTED,
    LOOP,
    LOOP_LISTED,
    NUMBERS,
    SEQUENCE,
    SETTINGS,
    Place,
    expected_keyed,
    expected_timers,
    job,
)

VERSIONS = sorted(path.name for path in GOLDEN.iterdir())


def test_this_version_has_a_checkpoint() -> None:
    import holdfast

    assert holdfast.__version__ in VERSIONS


@pytest.mark.spark
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_goes_on_from_it(version: str, spark: Any, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / version, tmp_path, dirs_exist_ok=True)
    found: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
    for kind, place, what in job(tmp_path, making=False).execute_and_collect(JOB):
        assert kind in ("keyed", "number") or place not in found[kind], "told twice"
        found[kind][place] = what
    read = set(found["number"])
    _check_positions(read)
    _check_keyed(found["keyed"])
    assert found["timer"] == expected_timers()
    _check_operator_state(found["operator"], set(NUMBERS) - read)
    assert found["listed"] == {subtask: [subtask, *LISTED] for subtask in (0, 1)}


def _check_positions(read: set[int]) -> None:
    """Each source goes on after the checkpoint: it gives the rest of its numbers."""
    half = len(SEQUENCE) // 2
    for part in (SEQUENCE[:half], SEQUENCE[half:], COLLECTION, LINES, LOOP, LOOP_LISTED):
        rest = sorted(read & set(part))
        assert part[0] < rest[0] <= part[-1], f"the source of {part} read from {rest[0]} on"
        assert rest == list(range(rest[0], part[-1] + 1))


def _check_keyed(found: dict[Any, Any]) -> None:
    expected = expected_keyed()
    assert found.keys() == expected.keys()
    for place, states in expected.items():
        for name, value in states.items():
            assert _exactly(found[place][name]) == _exactly(value), f"{name} of {place}"


def _exactly(value: Any) -> tuple[Any, str]:
    """For comparing types as well: 1 is not True, and a list is not a tuple."""
    return value, type(value).__name__


def _check_operator_state(found: dict[int, Any], before: set[int]) -> None:
    assert found.keys() == {0, 1}
    numbers = [found[subtask]["numbers"] for subtask in found]
    assert sorted(numbers[0] + numbers[1]) == sorted(before)
    for subtask, states in found.items():
        assert states["places"] == [Place("w", n) for n in states["numbers"]]
        assert states["subtasks"] == [0, 1]
        assert states["settings"] == SETTINGS
        assert states["raw"] == (b"raw %d" % subtask,)
