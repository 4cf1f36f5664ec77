"""What a checkpoint or savepoint says cannot decide where this process reads or writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.checkpoint.errors import CheckpointCorruptionError, CheckpointError
from holdfast.cli import main
from holdfast.errors import HoldfastError
from holdfast.savepoint import Savepoint
from holdfast.spark.epochs.query_offsets import OffsetLog
from holdfast.state.errors import StateCorruptionError
from holdfast.testing import LocalExecutor
from tests.forging import all_refs, forge_metadata, forge_state_file
from tests.savepoint.jobs import configuration, everything

RECORDS = [(f"k{n % 3}", n) for n in range(12)]
NAMES = ["/tmp/holdfast-forged", "../forged", "../../forged", "..", "a/b", "nul\0", "x" * 300, ""]


@pytest.fixture
def savepoint(tmp_path: Path) -> Iterator[Path]:
    """A savepoint of a job on RocksDB; nothing but it and what the job made is there after."""
    config = configuration(tmp_path / "job", "rocksdb")
    with LocalExecutor(everything(config, RECORDS), quota=5) as job:
        job.epoch(checkpoint=True)
        path = Path(job.savepoint())
    yield path
    forged = [found for found in tmp_path.rglob("*") if "forged" in found.name]
    assert forged == [], "no file has a name that the savepoint chose"
    assert not Path("/tmp/holdfast-forged").exists()


def read_all(path: Path) -> None:
    """Look at everything, as ``holdfast state show`` does."""
    savepoint = Savepoint.read(path)
    savepoint.sizes()
    for uid, operator in savepoint.operators.items():
        for state in operator.states:
            if state.keyed and not state.internal:
                savepoint.keyed_state(uid, state.name).to_pylist()


def run_from(path: Path, tmp_path: Path) -> None:
    config = configuration(tmp_path / "next", "rocksdb", start=str(path))
    with LocalExecutor(everything(config, RECORDS)) as job:
        job.run_to_end()


def index_of(header: list[Any], body: bytes) -> tuple[list[Any], dict[str, Any]]:
    """The header of the blob with the table index, and the index."""
    end = len(body)
    for blob in reversed(header[1]):
        size = blob[2] or 0
        if blob[:2] == ["\0tables", "index"]:
            return blob, msgspec.msgpack.decode(body[end - size : end])
        end -= size
    pytest.fail("the base has no index")


def forge_index(savepoint: Path, change: Any) -> None:
    def rewrite(header: list[Any], body: bytes) -> bytes:
        blob, index = index_of(header, body)
        change(index)
        data = msgspec.msgpack.encode(index)
        assert header[1][-1] == blob, "the index is the last blob"
        forged = body[: len(body) - blob[2]] + data
        blob[2] = len(data)
        return forged

    for path in (savepoint / "state").glob("*.state"):
        if b"\0tables" in path.read_bytes():
            forge_state_file(path, rewrite)


def table_named(name: str) -> Any:
    def change(index: dict[str, Any]) -> None:
        index["tables"][0] = name

    return change


def file_named(name: str) -> Any:
    def change(index: dict[str, Any]) -> None:
        index["files"][name] = b"written by the savepoint"

    return change


def test_the_savepoint_is_right_before_it_is_forged(savepoint: Path, tmp_path: Path) -> None:
    forge_index(savepoint, lambda index: None)
    read_all(savepoint)
    run_from(savepoint, tmp_path)


@pytest.mark.parametrize("name", [*NAMES, "OPTIONS-000007", "rocksdict-config.json", "000001.log"])
@pytest.mark.parametrize("where", [table_named, file_named])
def test_a_table_index_names_files_of_a_database_only(
    savepoint: Path, tmp_path: Path, where: Any, name: str
) -> None:
    forge_index(savepoint, where(name))
    shown = repr(name)[1:20]
    with pytest.raises(
        StateCorruptionError, match=r"state file '.*\.state' cannot be used"
    ) as raised:
        read_all(savepoint)
    assert shown in str(raised.value)


def test_such_a_savepoint_is_refused_in_every_way(savepoint: Path, tmp_path: Path) -> None:
    forge_index(savepoint, file_named("/tmp/holdfast-forged"))
    with pytest.raises(HoldfastError, match="/tmp/holdfast-forged"):
        run_from(savepoint, tmp_path)
    shown = CliRunner().invoke(main, ["state", "show", str(savepoint), "everything", "last"])
    assert shown.exit_code == 1
    assert "/tmp/holdfast-forged" in shown.output


@pytest.mark.parametrize("name", NAMES)
def test_the_metadata_names_plain_files_only(savepoint: Path, name: str) -> None:
    def change(metadata: dict[str, Any]) -> None:
        all_refs(metadata)[-1][0] = name

    forge_metadata(savepoint, change)
    with pytest.raises(CheckpointCorruptionError, match="not the plain name of a file") as raised:
        Savepoint.read(savepoint)
    assert repr(name)[1:20] in str(raised.value)


@pytest.mark.parametrize("name", ["/tmp/holdfast-forged", "../x", "sources/../../x", "offsets//1"])
def test_the_log_of_a_query_stays_in_its_directory(savepoint: Path, name: str) -> None:
    forge_metadata(savepoint, lambda metadata: metadata["spark"].update({name: b"", "batch": b"1"}))
    with pytest.raises(CheckpointError, match="is not a plain relative path"):
        Savepoint.read(savepoint)


@pytest.mark.parametrize("batch", [b"", b"-1", b"x", b"9" * 5000])
def test_the_number_of_a_batch_is_one(tmp_path: Path, batch: bytes) -> None:
    log = OffsetLog(tmp_path / "log", needed=True)
    with pytest.raises(CheckpointCorruptionError, match="expected the number of a batch"):
        log.start_from({"batch": batch})
    assert log.start_from({"batch": b"3", "sources/0/3": b"v1"}) == 4
    assert (tmp_path / "log" / "sources" / "0" / "3").read_bytes() == b"v1"


def test_a_pipe_or_a_device_is_no_state_file(savepoint: Path) -> None:
    victim = next((savepoint / "state").iterdir())
    victim.unlink()
    os.mkfifo(victim)
    with pytest.raises(CheckpointError, match=r"expected \d+ bytes, found 0"):
        Savepoint.read(savepoint)
    (savepoint / "_metadata").unlink()
    (savepoint / "_metadata").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="not a regular file"):
        Savepoint.read(savepoint)
