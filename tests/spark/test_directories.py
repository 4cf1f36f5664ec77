"""The directories of a running job, without Spark: what is the driver's, and what all hosts see."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.driver.directory import JobDirectory
from holdfast.errors import JobExecutionError
from holdfast.filesystem import configure, configured, file_system_of
from holdfast.runtime.operators.staging import StagedColumns, StagingWriter, read_staged
from tests.conftest import S3


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "user"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(path))
    return path


def test_in_a_local_session_workers_see_the_drivers_own(tmp_path: Path, user: Path) -> None:
    for setting, parent in ((None, user), (str(tmp_path / "run"), tmp_path / "run")):
        made = JobDirectory(setting, local=True)
        assert made.shared == made.address == str(made.path)
        assert list(parent.iterdir()) == [made.path]
        made.remove()
        assert list(parent.iterdir()) == []


def test_on_a_cluster_without_a_setting_nothing_is_shared(user: Path) -> None:
    made = JobDirectory(None, local=False)
    assert (made.shared, made.address) == ("", str(made.path))
    made.remove()
    assert list(user.iterdir()) == []


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_on_a_cluster_a_mount_is_apart_from_what_is_the_drivers(
    tmp_path: Path, user: Path, scheme: str
) -> None:
    made = JobDirectory(f"{scheme}{tmp_path}/run", local=False)
    assert list((tmp_path / "run").iterdir()) == [Path(made.shared)]
    assert made.path.parent == user
    made.remove()
    assert [*(tmp_path / "run").iterdir(), *user.iterdir()] == []


def test_on_a_cluster_the_directory_may_be_on_an_object_store(user: Path, s3: S3) -> None:
    before = configured()
    configure(s3.options)
    try:
        made = JobDirectory(f"{s3.uri}/run", local=False)
        files, path = file_system_of(f"{s3.uri}/run")
        assert [status.name for status in files.list_directory(path)] == [Path(made.shared).name]
        address = f"{made.shared}/rows/a.parquet"
        writer = StagingWriter(StagedColumns(pa.schema([("n", pa.int64())])), address)
        writer.write([(1,), (2,)])
        assert writer.finish() is not None
        assert [batch.to_pylist() for batch in read_staged(address)] == [[{"n": 1}, {"n": 2}]]
        made.remove()
        assert files.list_directory(path) == []
        assert list(user.iterdir()) == []
    finally:
        configure(before)


@pytest.mark.parametrize("setting", ["gopher://x/run", "{file}/run", "s3a://no-such-bucket/run"])
def test_a_directory_that_cannot_be_made_names_the_setting(
    tmp_path: Path, user: Path, s3: S3, setting: str
) -> None:
    (tmp_path / "file").touch()
    before = configured()
    configure(s3.options)
    try:
        with pytest.raises(JobExecutionError, match=r"set 'holdfast.directory' to a place that"):
            JobDirectory(setting.format(file=tmp_path / "file"), local=False)
    finally:
        configure(before)
    assert list(user.iterdir()) == []
