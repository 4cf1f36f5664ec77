"""The benchmark of the first result: what is measured of a command, and what it comes to."""

from __future__ import annotations

import sys

import pytest

from benchmarks.own.first_result_job import COMMANDS, Seen, figures_of, watch

TALKS = """
import sys, time
print("holdfast: starting Spark ...", file=sys.stderr)
time.sleep(0.2)
print("first")
time.sleep(0.2)
print("second")
"""


def test_times_of_the_first_lines() -> None:
    seen = watch([sys.executable, "-c", TALKS])
    assert seen.starting is not None
    assert seen.starting + 0.1 < seen.first
    assert seen.lines == 2


def test_a_command_that_fails_has_no_times() -> None:
    with pytest.raises(RuntimeError, match=r"ended with exit code 3:\nno Java"):
        watch([sys.executable, "-c", "import sys; print('no Java', file=sys.stderr); sys.exit(3)"])


def test_ratios_are_those_of_rounds() -> None:
    rounds = [
        {
            name: Seen(seconds * share, 0.25, 19)
            for name, share in zip(COMMANDS, shares, strict=True)
        }
        for seconds, shares in ((1.0, (0.5, 6, 9, 5)), (2.0, (0.25, 5, 10, 5)))
    ]
    figures = figures_of(rounds)
    assert (figures["local"], figures["local_lowest"], figures["local_highest"]) == (0.5, 0.5, 0.5)
    assert figures["starting_spark"] == 0.25
    assert (figures["resident_to_bare_lowest"], figures["resident_to_bare_highest"]) == (1.0, 1.2)
    assert figures["epochs_to_bare"] == pytest.approx(1.9, rel=0.01)
