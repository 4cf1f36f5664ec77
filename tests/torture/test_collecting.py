"""``scripts/torture.py long``: pieces of several sessions add up, and one that failed is seen."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES, KAFKA = "orders to files", "Kafka to Kafka"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torture_script", ROOT / "scripts" / "torture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def piece(
    seed: int, program: str = FILES, engine: str = "resident", code: int = 0, **more: Any
) -> Any:
    faults = {"kill-worker": 3, "cut": 1}
    known = {"program": program, "engine": engine, "seed": seed, "asked": 4, "faults": faults}
    figures = {"compared": {"a": 100, "b": 20}, "seconds": 60, "commit": "abc", "findings": []}
    return {**known, **figures, "exit_code": code, **more}


def test_the_next_piece_is_of_the_program_with_the_fewest_faults(script: ModuleType) -> None:
    programs = (FILES, KAFKA)
    assert script.next_of([], programs) == (FILES, "resident")
    some = [piece(1), piece(2, engine="epochs"), piece(3, KAFKA)]
    assert script.next_of(some, programs) == (KAFKA, "epochs")
    assert script.next_of(some, (FILES,)) == (FILES, "resident")


def test_every_program_has_its_options_and_arguments(script: ModuleType) -> None:
    assert script.arguments_of(script.IN_PLACE, 30, []) == (
        script.CHANGED_IN_PLACE,
        "counts",
        "4000",
    )
    assert (ROOT / script.CHANGED_IN_PLACE).exists()
    assert "state.backend.type=rocksdb" in script.OPTIONS[script.IN_PLACE_ROCKSDB]
    assert "{run}" in script.arguments_of(script.FILES, 30, [])


def test_pieces_of_several_files_add_up(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    assert script.read_pieces(path) == []
    some = [piece(1), piece(2), piece(4), piece(5, KAFKA, "epochs")]
    path.write_text("".join(json.dumps(each) + "\n" for each in some))
    assert script.summary(script.read_pieces(path)) == 0
    printed = capsys.readouterr().out
    files = "| orders to files | resident | 3 | 1 to 2, 4 | 12 | 360 | 3 min, 15.0 s per fault |"
    assert files in printed
    assert "| Kafka to Kafka | epochs | 1 | 5 | 4 | 120 | 1 min, 15.0 s per fault |" in printed
    assert "16 faults: 12 kill-worker, 4 cut" in printed


@pytest.mark.parametrize("wrong", [piece(2, code=1), piece(2, asked=5)])
def test_a_piece_that_did_not_pass_is_shown(
    script: ModuleType, wrong: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.summary([piece(1), wrong]) == 1
    assert f"NOT PASSED: {json.dumps(wrong)}" in capsys.readouterr().out


def test_it_goes_on_where_it_was_interrupted_and_ends_at_a_difference(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(piece(1)) + "\n")
    codes = iter([0, 1])

    def made(program: str, engine: str, seed: int, faults: int, *more: Any) -> Any:
        return piece(seed, program, engine, next(codes))

    monkeypatch.setattr(script, "piece_of", made)
    monkeypatch.setenv("FAULTS", "100")
    assert script.long(path, []) == 1
    found = [(each["seed"], each["engine"]) for each in script.read_pieces(path)]
    assert found == [(1, "resident"), (2, "epochs"), (3, "resident")]


def test_it_ends_when_there_are_enough_faults(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(program: str, engine: str, seed: int, *more: Any) -> Any:
        return piece(seed, program, engine)

    monkeypatch.setattr(script, "piece_of", made)
    monkeypatch.setenv("FAULTS", "10")
    path = tmp_path / "results.jsonl"
    assert script.long(path, []) == 0
    assert [each["seed"] for each in script.read_pieces(path)] == [1, 2, 3]
