"""What is made of the phases in which clients watch a job, and of those in which they do not."""

from __future__ import annotations

import pytest

from benchmarks.measure import Mark
from benchmarks.own.rest_job import Phase, compared, rate


def run(*rates: float) -> tuple[list[Mark], list[Phase]]:
    """Phases of five seconds, each with an epoch a second at its own rate."""
    marks: list[Mark] = []
    phases: list[Phase] = []
    total = 0.0
    for number, each in enumerate(rates):
        began = 100.0 + 5 * number
        phases.append((began, began + 5))
        for second in range(5):
            total += each
            marks.append((began + second + 0.5, total))
    return marks, phases


def test_the_rate_of_a_phase_is_that_of_the_epochs_within() -> None:
    marks, phases = run(10, 1000, 20)
    assert [rate(marks, phase) for phase in phases] == [10, 1000, 20]
    assert rate(marks[:1], phases[0]) is None


def test_the_first_phase_of_each_kind_does_not_count() -> None:
    figures = compared(*run(1, 7777, 100, 90, 100))
    assert figures == pytest.approx({"alone": 100, "watched": 90, "watched_to_alone": 0.9})


def test_what_the_machine_does_meanwhile_is_not_in_the_figure() -> None:
    """It gets faster all the time: by ten a phase."""
    speeds = [100.0 + 10 * number for number in range(12)]
    watched = [speed * (0.9 if number % 2 else 1) for number, speed in enumerate(speeds)]
    figures = compared(*run(*watched))
    assert figures["watched_to_alone"] == pytest.approx(0.9)
    assert figures["error"] == pytest.approx(0)


def test_the_error_is_that_of_the_mean() -> None:
    figures = compared(*run(1, 1, 100, 80, 100, 100, 100, 90, 100))
    # ratios of 0.8, 1.0 and 0.9: a deviation of 0.1
    assert figures["watched_to_alone"] == pytest.approx(0.9)
    assert figures["error"] == pytest.approx(0.1 / 3**0.5)


def test_phases_with_too_few_epochs_are_left_out() -> None:
    """So is a watched one without one after it, in which the job ended."""
    marks, phases = run(1, 1, 100, 90, 100, 50, 100, 10)
    few = [mark for mark in marks if not phases[5][0] < mark[0] < phases[5][0] + 4]
    assert compared(few, phases) == pytest.approx(
        {"alone": 100, "watched": 90, "watched_to_alone": 0.9}
    )
    assert compared(marks, phases[:4]) == {}
