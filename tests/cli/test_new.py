"""``holdfast new``: what it makes is clean, passes its test, and runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast


@pytest.fixture
def made(holdfast: Holdfast, tmp_path: Path) -> Path:
    done = holdfast("new", tmp_path / "word-count")
    assert done.exit_code == 0, done.output
    assert f"holdfast run {tmp_path}/word-count/job.py" in done.output
    return tmp_path / "word-count"


def check(*command: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_test_passes_and_it_is_clean(made: Path) -> None:
    assert sorted(file.name for file in made.iterdir()) == ["job.py", "test_job.py"]
    ruff = ("--isolated", "--line-length", "100", ".")
    check("ruff", "check", "--select", "E,F,I,B,UP", *ruff, cwd=made)
    check("ruff", "format", "--check", *ruff, cwd=made)
    check("pytest", "-q", "-p", "no:cacheprovider", cwd=made)


@pytest.mark.spark
def test_it_runs(made: Path, spark: object, holdfast: Holdfast) -> None:
    (made / "words.txt").write_text("Kelp kelp\nrock\n")
    done = holdfast("run", "-p", "1", made / "job.py", "--input", made / "words.txt")
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout.splitlines()) == ["('kelp', 1)", "('kelp', 2)", "('rock', 1)"]


def test_what_is_there_is_left_alone(holdfast: Holdfast, made: Path) -> None:
    (made / "job.py").write_text("mine")
    done = holdfast("new", made)
    assert done.exit_code == 1
    assert done.stderr == f"Error: '{made}' is there, and not empty; choose another name\n"
    assert (made / "job.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["7up", "a b", "...", 'x"y'])
def test_a_name_that_is_none(holdfast: Holdfast, tmp_path: Path, name: str) -> None:
    done = holdfast("new", tmp_path / name)
    assert done.exit_code == 2
    assert "begins with a letter" in done.stderr


def test_a_place_that_cannot_be_written(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = holdfast("new", tmp_path / "file" / "name")
    assert done.exit_code == 1
    assert "Not a directory; choose another place" in done.stderr
