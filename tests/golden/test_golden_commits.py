"""What the code of earlier commits has saved can be read and gone on from, with every state right.

The files are in `commits`; see `tests.golden.commits`. They are never written anew: if one of these
tests fails, the code of today does not read what users have.
"""

from __future__ import annotations

import dataclasses
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.common import Row
from holdfast.savepoint import Savepoint
from holdfast.testing import LocalExecutor, ManualClock
from tests.golden import program, timed
from tests.golden.checks import Told, by_kind, check_told, exactly
from tests.golden.commits import (
    BACKENDS,
    COMMITS,
    OPERATORS,
    SAVEPOINT,
    checkpoint_of,
    job,
)
from tests.golden.timed import ALARMS, LATER, TICKS, Transactions, expected_windows, key_of

IMAGES = ("checkpoint", "savepoint")


@pytest.fixture(params=sorted(path.name for path in COMMITS.iterdir()))
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=BACKENDS)
def folder(commit: str, request: pytest.FixtureRequest) -> Path:
    """What a commit has saved with one of its backends."""
    return COMMITS / commit / str(request.param)


def image_path(folder: Path, image: str) -> Path:
    return checkpoint_of(folder) if image == "checkpoint" else folder / SAVEPOINT


def go_on(folder: Path, image: str, backend: str, parallelism: int, home: Path) -> Told:
    """Run the job to its end from what is saved; from a checkpoint as the same job, started again.

    The clock has gone on for hours.
    """
    start = None
    if image == "checkpoint":
        shutil.copytree(folder / program.JOB, home / program.JOB)
    else:
        start = folder / SAVEPOINT
    Transactions.committed.clear()
    stream = job(home, backend, parallelism=parallelism, start=start)
    with LocalExecutor(stream, clock=ManualClock(LATER), workers=2) as run:
        run.run_to_end()
    return by_kind(run.records)


def check_timed(found: Told) -> None:
    """Check everything that `timed.streams` tells."""
    cut = min(found["tick"])
    assert set(found["tick"]) == set(TICKS[cut:])
    assert TICKS[0] < cut < TICKS[-1]
    due = {place: fired.value for place, fired in expected_windows().items() if fired.due >= cut}
    assert found["window"].keys() == due.keys()
    for place, value in due.items():
        assert exactly(found["window"][place]) == exactly(value), place
    assert found["alarm"] == {ALARMS + tick: key_of(tick) for tick in TICKS}
    assert found["fresh"] == dict(_expected_fresh(cut))


def _expected_fresh(cut: int) -> Iterator[tuple[int, tuple[int, int | None]]]:
    """By key: its first tick after the cut, and its last one before it, which did not expire."""
    for key in {key_of(tick) for tick in TICKS}:
        ticks = [tick for tick in TICKS if key_of(tick) == key]
        first = min(tick for tick in ticks if tick >= cut)
        yield key, (first, max((tick for tick in ticks if tick < cut), default=None))


def check_transactions(cut: int) -> None:
    """Pending transactions of the checkpoint are committed, and then those of the rest."""
    committed = sorted(set(Transactions.committed))
    assert committed[0] < cut
    assert committed == list(TICKS[committed[0] :])


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("image", IMAGES)
def test_a_job_goes_on_from_it(
    folder: Path, image: str, backend: str, parallelism: int, tmp_path: Path
) -> None:
    found = go_on(folder, image, backend, parallelism, tmp_path)
    check_told(found, OPERATORS, parallelism)
    check_timed(found)
    check_transactions(min(found["tick"]))


def read(folder: Path, image: str) -> Savepoint:
    return Savepoint.read(image_path(folder, image), trusted=True)


def by_key(savepoint: Savepoint, operator: str, state: str) -> dict[Any, Any]:
    return {row["key"]: row["value"] for row in savepoint.keyed_state(operator, state)}


def numbers_in(savepoint: Savepoint) -> list[int]:
    """The numbers that the job had read; operator state has them all."""
    return [row["value"] for row in savepoint.operator_state("modes", "numbers")]


def ticks_in(savepoint: Savepoint) -> range:
    """The ticks that the job had read."""
    return TICKS[: 1 + max(by_key(savepoint, "expiring", "kept").values())]


@pytest.mark.parametrize("image", IMAGES)
def test_keyed_state_is_read(folder: Path, image: str) -> None:
    savepoint = read(folder, image)
    (operator,) = OPERATORS
    expected = program.expected_keyed(OPERATORS, numbers_in(savepoint))
    assert len(expected) > 10
    names = {info.name for info in savepoint.operators[operator].states}
    assert names == set(next(iter(expected.values())))
    for name in names - {"mean", "distinct"}:
        found = by_key(savepoint, operator, name)
        wanted = {key: states[name] for (_, key), states in expected.items()}
        if not name.startswith("value of"):  # a list or map without elements is not there
            wanted = {key: value for key, value in wanted.items() if value not in ([], {})}
        assert {key: _plain(value) for key, value in found.items()} == {
            key: _plain(value) for key, value in wanted.items()
        }, name


def _plain(value: Any) -> Any:
    """A value as one who does not know its class sees it; lists and maps in one order."""
    if isinstance(value, program.Reading):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Row):
        return _plain(value.as_dict())
    if isinstance(value, Mapping):
        return _plain(list(value.items()))
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else sorted(parts, key=repr)
    return value


def _pairs(numbers: list[int]) -> tuple[int, int]:
    return sum(numbers), len(numbers)


@pytest.mark.parametrize("image", IMAGES)
def test_accumulators_are_read(folder: Path, image: str) -> None:
    savepoint = read(folder, image)
    (operator,) = OPERATORS
    numbers = numbers_in(savepoint)
    of_key: dict[Any, list[int]] = {}
    for number in numbers:
        of_key.setdefault(program.KEYS[operator](number), []).append(number)
    means = by_key(savepoint, operator, "mean")
    assert means == {key: _pairs(of_key[key]) for key in of_key}
    distinct = by_key(savepoint, operator, "distinct")
    assert {key: set(value) for key, value in distinct.items()} == {
        key: {number % 50 for number in of_key[key]} for key in of_key
    }


@pytest.mark.parametrize("image", IMAGES)
def test_operator_state_is_read(folder: Path, image: str) -> None:
    savepoint = read(folder, image)
    numbers = numbers_in(savepoint)
    assert numbers
    assert set(numbers) < set(program.NUMBERS)
    assert len(set(numbers)) == len(numbers)
    subtasks = savepoint.operator_state("modes", "subtasks").to_pylist()
    assert subtasks == [{"subtask": n, "value": n} for n in (0, 1)]
    settings = savepoint.operator_state("modes", "settings")
    assert {row["key"]: row["value"] for row in settings} == program.SETTINGS


@pytest.mark.parametrize("image", IMAGES)
def test_timers_are_read(folder: Path, image: str) -> None:
    savepoint = read(folder, image)
    numbers, ticks = set(numbers_in(savepoint)), ticks_in(savepoint)
    timers = {row["timestamp"]: (row["domain"], row["key"]) for row in savepoint.timers("timers")}
    wanted = {n: key for n, key in program.expected_timers().items() if n in numbers}
    assert timers == {n: ("EVENT_TIME", key) for n, key in wanted.items()}
    alarms = {row["timestamp"]: (row["domain"], row["key"]) for row in savepoint.timers("alarms")}
    assert alarms == {ALARMS + tick: ("PROCESSING_TIME", key_of(tick)) for tick in ticks}


@pytest.mark.parametrize("image", IMAGES)
def test_windows_are_read(folder: Path, image: str) -> None:
    savepoint = read(folder, image)
    cut = len(ticks_in(savepoint))
    for name in ("tumbling", "sessions"):
        open_ones = {
            place[1:]: [tick for tick in fired.value[0] if tick < cut]
            for place, fired in expected_windows().items()
            if place[0] == name and fired.due >= cut
        }
        found = {
            (row["key"], row["window"]["start"]): row["value"] for row in savepoint.windows(name)
        }
        assert found
        assert found == {place: ticks for place, ticks in open_ones.items() if ticks}, name
    assert list(savepoint.windows("joined")) == []


@pytest.mark.parametrize("image", IMAGES)
def test_times_of_access_are_read(folder: Path, image: str) -> None:
    """The clock stood at 0 when the files were made."""
    rows = read(folder, image).keyed_state("expiring", "brief").to_pylist()
    assert rows
    assert all(timed.key_of(row["value"]) == row["key"] for row in rows)
    assert {row["accessed"] for row in rows} == {0}


def test_the_files_are_those_of_405c46d() -> None:
    """That code wrote no names into the headers of state files, and three fields of a head."""
    files = list((COMMITS / "405c46d").rglob("*.state"))
    assert files
    for file in files:
        data = file.read_bytes()
        (length,) = struct.unpack_from("<I", data, 8)
        assert len(msgspec.msgpack.decode(data[28 : 28 + length])) == 2, file
    for file in (COMMITS / "405c46d").rglob("_metadata"):
        metadata = msgspec.msgpack.decode(file.read_bytes()[16:-4])
        heads = [head for level in metadata["levels"] for head in level["chains"]]
        assert {len(head) for head in heads} == {3}, file


@pytest.mark.parametrize("image", IMAGES)
def test_there_are_bases_with_deltas_and_with_shared_tables(folder: Path, image: str) -> None:
    levels = read(folder, image).image.metadata.levels
    heads = [head for level in levels for head in level.heads]
    assert all(len(head.files) > 1 for head in heads)
    tables = {len(head.tables) for head in heads}
    if folder.name == "hashmap":
        assert tables == {0}
    else:
        assert tables == ({2} if image == "checkpoint" else {1})
