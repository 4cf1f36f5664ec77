"""``holdfast checkpoints`` and ``holdfast savepoint``, with real ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from holdfast.checkpoint.savepoints import copy_savepoint, read_savepoint
from holdfast.filesystem import configure
from tests.cli.conftest import Holdfast
from tests.conftest import S3

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints" / "0.1.0" / "golden"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A checkpoint directory of one job, which has one checkpoint and one that was begun."""
    shutil.copytree(GOLDEN, tmp_path / "jobs" / "golden")
    (tmp_path / "jobs" / "golden" / "chk-5").mkdir()
    return tmp_path / "jobs"


@pytest.fixture
def savepoint(jobs: Path) -> str:
    image = read_savepoint(jobs / "golden" / "chk-4")
    return copy_savepoint(image.metadata, image.storage, jobs.parent / "savepoints")


def damage(directory: Path) -> Path:
    """Change a byte in the middle of a state file."""
    file = max((directory / "state").iterdir(), key=lambda file: file.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("below", [".", "golden", "golden/chk-4"])
def test_list_finds_them_from_above(holdfast: Holdfast, jobs: Path, below: str) -> None:
    done = holdfast("checkpoints", "list", jobs / below)
    assert done.exit_code == 0, done.output
    headers, row = done.output.splitlines()
    assert headers.split() == ["ID", "KIND", "JOB", "TAKEN", "FILES", "SIZE", "PATH"]
    assert row.split()[:3] == ["4", "checkpoint", "golden"]
    assert row.split()[-1] == str(jobs / "golden" / "chk-4")


def test_list_is_in_the_order_of_numbers(holdfast: Holdfast, jobs: Path) -> None:
    for number in (10, 9, 100):
        shutil.copytree(jobs / "golden" / "chk-4", jobs / "golden" / f"chk-{number}")
    listed = json.loads(holdfast("checkpoints", "list", "--json", jobs / "golden").output)
    names = [entry["path"].rpartition("/")[2] for entry in listed]
    assert names == ["chk-4", "chk-9", "chk-10", "chk-100"]


def test_list_of_savepoints(holdfast: Holdfast, savepoint: str) -> None:
    parent = Path(savepoint).parent
    (entry,) = json.loads(holdfast("checkpoints", "list", "--json", parent).output)
    assert (entry["kind"], entry["job"], entry["path"]) == ("savepoint", "golden", savepoint)
    assert entry["size"] == sum(f.stat().st_size for f in (Path(savepoint) / "state").iterdir())


def test_list_goes_on_after_one_that_is_damaged(holdfast: Holdfast, jobs: Path) -> None:
    (jobs / "golden" / "chk-5" / "_metadata").write_bytes(b"rubbish")
    done = holdfast("checkpoints", "list", jobs)
    assert [line.split()[1] for line in done.output.splitlines()[1:]] == ["checkpoint", "damaged"]
    entries = json.loads(holdfast("checkpoints", "list", "--json", jobs).output)
    assert "cannot be used" in entries[1]["problem"]


def test_list_of_nothing(holdfast: Holdfast, tmp_path: Path) -> None:
    done = holdfast("checkpoints", "list", tmp_path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"no checkpoints or savepoints in {tmp_path}\n"
    assert json.loads(holdfast("checkpoints", "list", "--json", tmp_path).stdout) == []


def test_show(holdfast: Holdfast, jobs: Path) -> None:
    lines = holdfast("checkpoints", "show", jobs / "golden" / "chk-4").output.splitlines()
    assert lines[0] == "checkpoint 4 of job 'golden'"
    assert "operator 'Process' uid=texts level=2 parallelism=2 key_groups=128" in lines
    assert "  state 'lasting value' [value] of tuple[string, long], with a time-to-live" in lines
    assert "  state 'settings' [broadcast], pickled" in lines


def test_show_as_json(holdfast: Holdfast, jobs: Path) -> None:
    path = jobs / "golden" / "chk-4" / "_metadata"
    shown = json.loads(holdfast("checkpoints", "show", "--json", path).output)
    assert shown["files"] == {f.name: f.stat().st_size for f in (GOLDEN / "state").iterdir()}
    states = {state["name"]: state for state in shown["operators"]["texts"]["states"]}
    assert states["count"] == {
        "name": "count",
        "kind": "value",
        "types": ["long"],
        "namespaced": False,
        "pickled": False,
        "expires": False,
    }


def test_verify(holdfast: Holdfast, jobs: Path) -> None:
    done = holdfast("checkpoints", "verify", jobs)
    assert (done.exit_code, done.output) == (0, f"{jobs}/golden/chk-4: all right\n")


def test_verify_finds_a_changed_byte(holdfast: Holdfast, jobs: Path, savepoint: str) -> None:
    file = damage(jobs / "golden")
    done = holdfast("checkpoints", "verify", jobs)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{jobs}/golden/chk-4: DAMAGED: checkpoint 4 cannot be used")
    assert str(file) in done.stdout
    (verdict,) = json.loads(holdfast("checkpoints", "verify", "--json", jobs).stdout)
    assert verdict["path"] == f"{jobs}/golden/chk-4"
    assert str(file) in verdict["problem"]
    assert holdfast("checkpoints", "verify", savepoint).exit_code == 0


def test_dispose(holdfast: Holdfast, savepoint: str) -> None:
    done = holdfast("savepoint", "dispose", savepoint)
    assert (done.exit_code, done.output) == (0, f"disposed of {savepoint}\n")
    assert not Path(savepoint).exists()


def test_a_checkpoint_is_not_disposed_of(holdfast: Holdfast, jobs: Path) -> None:
    done = holdfast("savepoint", "dispose", jobs / "golden" / "chk-4")
    assert done.exit_code == 1
    assert "is a checkpoint of a job, not a savepoint; nothing is deleted" in done.stderr
    assert holdfast("checkpoints", "verify", jobs).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["checkpoints", "list", "nowhere"], 1, "nowhere'; name one with checkpoints"),
        (["checkpoints", "verify", "."], 1, "there is no checkpoint or savepoint in"),
        (["checkpoints", "show", "."], 1, "no file '_metadata'; 'holdfast checkpoints list"),
        (["checkpoints", "show", "ftp://host/x"], 2, "there is no file system for 'ftp://host/x'"),
        (["savepoint", "dispose", "nowhere"], 1, "there is no checkpoint or savepoint in"),
        (["savepoint", "dispose"], 2, "Missing argument 'PATH...'"),
    ],
)
def test_mistakes(
    holdfast: Holdfast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = holdfast(*arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("Error")]) == 1


def test_on_s3_with_settings_of_the_command_line(holdfast: Holdfast, jobs: Path, s3: S3) -> None:
    image = read_savepoint(jobs / "golden" / "chk-4")
    configure(s3.options)
    address = copy_savepoint(image.metadata, image.storage, f"{s3.uri}/savepoints")
    configure({})
    settings = [part for key, value in s3.options.items() for part in ("-D", f"{key}={value}")]
    try:
        (entry,) = json.loads(
            holdfast("checkpoints", "list", "--json", *settings, f"{s3.uri}/savepoints").output
        )
        assert entry["path"] == address
        assert holdfast("checkpoints", "verify", *settings, s3.uri).exit_code == 0
        assert holdfast("savepoint", "dispose", *settings, address).exit_code == 0
        assert holdfast("checkpoints", "list", *settings, address).exit_code == 1
    finally:
        configure({})
