"""Executors that die in the middle of an epoch: what was read of a run and of its repetition.

Spark computes the lost output of a stage again while consumers of the first run have ended already.
If the second run is another one, the consumers stand for two different pasts. Step 8 finds that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.engine("epochs")]

ROOT = Path(__file__).parents[2]
JOBS = ["fickle", "unchecked"]
FATAL_READ = 2


class Outcome(NamedTuple):
    """What a job left behind: its records, and what the program said while it ran."""

    records: list[Any]
    calls: list[tuple[int, int, str]]
    log: str
    killed: bool

    def ids(self) -> dict[tuple[int, int], dict[str, set[int]]]:
        """By source subtask and read: the calls that were seen, and by which subtasks."""
        seen: dict[tuple[int, int], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for producer, read, call, subtask in self.records:
            seen[producer, read][call].add(subtask)
        return seen

    def calls_of_fatal_read(self) -> dict[int, int]:
        """How often each source subtask was asked in the epoch in which the executor died."""
        subtasks = [subtask for subtask, read, _ in self.calls if read == FATAL_READ]
        return {subtask: subtasks.count(subtask) for subtask in subtasks}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """One cluster for all jobs: most of the time goes into its start."""
    folder = tmp_path_factory.mktemp("executors")
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.losing_executors", str(folder), *JOBS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert run.returncode == 0, run.stderr
    logs = dict(re.findall(r"job '(\w+)' begins\n(.*?)(?=\S+ \S+ root:|\Z)", run.stderr, re.DOTALL))
    return {job: _outcome(folder, job, logs[job]) for job in JOBS}


def _outcome(folder: Path, job: str, log: str) -> Outcome:
    file = folder / f"{job}.calls"
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    calls = [(int(subtask), int(read), call) for subtask, read, call in lines]
    records = json.loads((folder / f"{job}.json").read_text())
    return Outcome(records, calls, log, (folder / f"{job}.killed").exists())


def test_an_epoch_that_read_two_runs_of_a_source_is_discarded_and_run_again(
    outcomes: dict[str, Outcome],
) -> None:
    outcome = outcomes["fickle"]
    assert outcome.killed
    # the one whose output was lost: computed again by Spark, then with the epoch; the other: only
    # with the epoch
    assert sorted(outcome.calls_of_fatal_read().values()) == [2, 3]
    discarded = re.findall(r"epoch \d+ is discarded and run again: (.*)", outcome.log)
    assert len(discarded) == 1
    assert re.match(r"subtask 1/\d read run \S+ of its producer 0/\d, others read", discarded[0])
    for place, ids in outcome.ids().items():
        assert list(ids.values()) == [{0, 1, 2, 3}], f"all saw the same call at {place}"
    assert len(outcome.records) == 2 * 4 * 64


def test_without_agreement_subtasks_would_stand_for_two_pasts(
    outcomes: dict[str, Outcome],
) -> None:
    """What the check is for: that the test above can fail."""
    outcome = outcomes["unchecked"]
    assert outcome.killed
    assert sorted(outcome.calls_of_fatal_read().values()) == [1, 2]
    assert "is discarded" not in outcome.log
    mixed = {place: ids for place, ids in outcome.ids().items() if len(ids) > 1}
    ((_, read),) = mixed
    assert read == FATAL_READ
    (ids,) = mixed.values()
    assert sorted(map(sorted, ids.values())) == [[0], [1, 2, 3]]
