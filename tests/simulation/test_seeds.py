"""The protocol keeps its promises in many thousand mishaps; see docs/internals/simulation.md.

One seed again: ``pytest tests/simulation --seed 1234``; or ``python -m tests.simulation 1234``,
which tells its story.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.life import simulate
from tests.simulation.world import ODDS

SEEDS = 1_000
AT_ONCE = 50
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

#: what follows from the misfortunes, and must have happened too
CONSEQUENCES = (
    "a checkpoint was aborted",
    "a checkpoint was completed",
    "a driver died",
    "a driver with the engine 'epochs'",
    "a driver with the engine 'resident'",
    "a function raised",
    "a job was cancelled while restarting",
    "a rescaling was answered",
    "a rescaling was refused",
    "a savepoint was made",
    "a stop was asked for while rescaling",
    "a zombie came in time",
    "a zombie came too late",
    "a zombie wrote its state late",
    "an aligned mark waited for others",
    "an attempt began again",
    "an epoch was discarded",
    "records waited behind an aligned mark",
    "the driver missed a slot",
    "the job ended: cancelled",
    "the job ended: failed",
    "the job ended: finished",
    "the job ended: stopped",
    "the job goes back to more slots",
    "the job goes on with fewer slots",
    "the job runs with another plan",
    "something was asked for while the job ended",
    "two checkpoints were under way at once",
    "two requests waited at once",
)

#: how often each must have happened, and what takes several others before it
OFTEN = 25
RARE = {"the job goes back to more slots": 7}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--seed")
        places = [(seed, seed) for seed in chosen or ()] or [
            (first, first + AT_ONCE - 1) for first in range(0, SEEDS, AT_ONCE)
        ]
        names = [f"seed_{a}" if a == b else f"seeds_{a}_to_{b}" for a, b in places]
        metafunc.parametrize(("first", "last"), places, ids=names)


@cache
def live_through(first: int, last: int) -> Counter[str]:
    """What happened in these seeds; raises at the first that fails."""
    return sum((simulate(seed).counts for seed in range(first, last + 1)), Counter())


def test_seeds(first: int, last: int) -> None:
    live_through(first, last)


def test_everything_that_can_go_wrong_did() -> None:
    counts: Counter[str] = Counter()
    for first in range(0, SEEDS, AT_ONCE):
        counts += live_through(first, first + AT_ONCE - 1)
    seldom = {
        what: counts[what]
        for what in (*ODDS, *CONSEQUENCES)
        if counts[what] < RARE.get(what, OFTEN)
    }
    assert not seldom, f"in {SEEDS} seeds these happened hardly ever: {seldom}"


def test_a_seed_is_the_same_story_in_every_process() -> None:
    stories = set()
    for hashes in ("1", "2"):
        command = [sys.executable, "-m", "tests.simulation", "--stories", "7", "11", "40-59"]
        path = os.pathsep.join(sys.path)
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        stories.add(ran.stdout)
    (story,) = stories
    assert "the driver dies" in story
