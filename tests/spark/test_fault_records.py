"""Series of faults that are run in pieces: what is kept of each, and what comes next."""

from __future__ import annotations

from pathlib import Path

from tests.spark.fault_records import Outcome, Record, continued, read, total, write


def record(seed: int, *seconds: float | None) -> Record:
    outcomes = [Outcome("slot killed", each, 1) for each in seconds]
    return Record(seed, "resident", "2026-11-18 15:00", outcomes=outcomes, numbers=1000)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    assert read(path) == []
    pieces = [record(7, 1.0, None), record(8)]
    for piece in pieces:
        write(path, piece)
    assert read(path) == pieces


def test_the_next_piece_has_the_next_seed_and_the_faults_that_are_left() -> None:
    assert continued([], 7, 5) == (7, 5)
    assert continued([record(7, 1.0, 2.0), record(8, 3.0)], 7, 5) == (9, 2)
    assert continued([record(7, 1.0, 2.0), record(8, 3.0)], 7, 3) == (9, 0)


def test_the_total_adds_up_and_names_every_problem() -> None:
    wrong = record(8, 9.0)
    wrong.problems = ["number 3 of source 1 was committed again"]
    exact = total([record(7, 1.0, 4.0)]).splitlines()
    assert exact[-1].startswith("1 series: 2 faults of 1 kinds, 2 restarts, 1,000 numbers")
    assert exact[-1].endswith("; every count exact")
    both = total([record(7, 1.0, None), wrong]).splitlines()
    assert both[-1].startswith("2 series: 3 faults")
    assert both[-1].endswith("; 1 PROBLEMS")
    assert both[-2] == wrong.problems[0]
