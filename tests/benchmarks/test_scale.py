"""The benchmark of the driver with many slots, with few; timings decide nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.scale.command import parse
from benchmarks.scale.driver import measure


@pytest.mark.parametrize("whole", [False, True])
def test_every_step_is_measured(whole: bool, tmp_path: Path) -> None:
    figures = measure(3, 2, tmp_path, whole)
    assert figures.slots == 3
    for cost in (figures.gather, figures.round, figures.checkpoint, figures.restart):
        assert cost.ms > 0
        assert cost.sent > 0
        assert cost.received > 0
    # the first round of a restart says where the state of each subtask is
    assert figures.restart.sent > figures.round.sent
    # threads of whole slots: one per subtask of three levels, and one per connection
    assert figures.slot_threads > (5 if whole else 0)


def test_figures_are_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scale.json"
    assert cli.main(["scale", "--slots", "2", "--rounds", "1", "--json", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "| 2 | checkpoint | " in shown
    assert [each["slots"] for each in json.loads(path.read_text("utf-8"))["light"]] == [2]


def test_numbers_of_slots() -> None:
    assert parse([]).slots == [16, 64, 256]
    assert (parse(["--whole", "4"]).slots, parse(["--whole", "4"]).whole) == ([], [4])


def test_wrong_numbers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["scale", "--slots", "16,x"])
    assert "'16,x' is no list of numbers above zero, such as 16,64" in capsys.readouterr().err
