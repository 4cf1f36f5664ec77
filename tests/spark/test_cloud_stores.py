"""Jobs on Spark whose checkpoints, savepoints and Parquet files are on ``gs://`` or ``abfss://``.

The stores are emulators. Drivers are really killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common.options.engine import ENGINE
from holdfast.errors import HoldfastError
from holdfast.filesystem import file_system_of
from tests.conftest import ROOT, Store
from tests.spark.cloud_job import part_files, verify
from tests.spark.test_remote_checkpoints import goes_on_from_the_store
from tests.spark.witness import Job, until
from tests.stores import HOST, KEY, azure_options, gs_options, new_store, skip_without_emulators

skip_without_emulators()

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(params=["gs", "abfss"])
def store(request: pytest.FixtureRequest) -> Store:
    return new_store(request.param)


def test_the_driver_is_killed_and_the_next_one_goes_on_from_the_store(
    tmp_path: Path, store: Store, engine: str
) -> None:
    goes_on_from_the_store(tmp_path, store, engine)


class Driver:
    """A process with the job."""

    def __init__(
        self, store: Store, engine: str, folder: Path, *arguments: str, **more: str
    ) -> None:
        settings = {str(ENGINE): engine, "spark.master": "local[2,4]", "spark.ui.enabled": "false"}
        settings |= {f"spark.hadoop.{key}": value for key, value in store.options.items()}
        settings |= {key.replace("__", "."): value for key, value in more.items()}
        command = [sys.executable, "-m", "tests.spark.cloud_job", store.uri]
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, json.dumps(settings), str(folder), *arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    @property
    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(600)


@pytest.fixture
def drivers() -> Iterator[ExitStack]:
    with ExitStack() as ends:
        yield ends


def test_two_drivers_one_killed_and_one_stopped_give_each_row_once(
    tmp_path: Path, store: Store, engine: str, drivers: ExitStack
) -> None:
    """Two that start at once; the one that runs is killed; the next is stopped with a savepoint."""
    files, out = file_system_of(f"{store.uri}/out", store.options)
    (tmp_path / "slow").touch()

    def start(*arguments: str, settings: dict[str, str] | None = None) -> Driver:
        named = {key.replace(".", "__"): value for key, value in (settings or {}).items()}
        driver = Driver(store, engine, tmp_path, *arguments, **named)
        drivers.callback(driver.process.kill)
        return driver

    both = [start(), start()]
    until(lambda: any(driver.process.poll() is not None for driver in both), 300)
    (loser,) = (driver for driver in both if driver.process.poll() is not None)
    (winner,) = (driver for driver in both if driver is not loser)
    assert loser.process.returncode == 1, loser.printed
    assert "DirectoryInUseError" in loser.printed
    assert f"{store.uri}/jobs/counts" in loser.printed
    until(lambda: part_files(files, out), 300)
    assert winner.process.poll() is None, winner.printed
    winner.process.kill()
    assert winner.wait() == -signal.SIGKILL

    stopped = start("--stop")
    assert stopped.wait() == 0, stopped.printed
    assert "continues from checkpoint" in stopped.printed
    (path,) = (line[10:] for line in stopped.printed.splitlines() if line.startswith("savepoint "))
    assert path.startswith(f"{store.uri}/savepoints/savepoint-")
    (tmp_path / "slow").unlink()

    last = start(
        *("--parallelism", "1"),
        settings={
            "execution.state-recovery.path": path,
            "execution.checkpointing.dir": f"{store.uri}/others",
        },
    )
    assert last.wait() == 0, last.printed
    verify(files, out)
    directory, folder = file_system_of(f"{store.uri}/others/counts", store.options)
    assert CheckpointStore(folder, directory).completed() == []
    assert "lock" not in {status.name for status in directory.list_directory(folder)}


@pytest.mark.parametrize(
    ("uri", "settings", "problem", "remedy"),
    [
        (
            "gs://no-such-bucket",
            gs_options(),
            "there is no bucket 'no-such-bucket'",
            "create it, or correct the address",
        ),
        (
            "gs://bucket",
            gs_options("http://127.0.0.1:1"),
            "Could not connect to server",
            "check the network, and fs.gs.storage.root.url if it is set",
        ),
        (
            "gs://bucket",
            {
                **gs_options(),
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": "/no/such/key.json",
            },
            "Cannot open credentials file /no/such/key.json",
            "check fs.gs.auth.service.account.json.keyfile, or the environment variable",
        ),
        (
            f"abfss://no-such-container@{HOST}",
            azure_options(),
            f"there is no container 'no-such-container' in {HOST}",
            "create it, or correct the address",
        ),
        (
            f"abfss://box@{HOST}",
            azure_options("http://127.0.0.1:1"),
            "Could not connect to server",
            "check the network, the account in the address, and fs.azure.abfs.endpoint if it is",
        ),
        (
            f"abfss://box@{HOST}",
            azure_options(key=KEY.replace("Eby", "Abc")),
            "AuthorizationFailure: 403 Server failed to authenticate",
            f"check fs.azure.account.key.{HOST}",
        ),
        (
            f"abfss://box@{HOST}",
            azure_options(key="secret"),
            f"fs.azure.account.key.{HOST} is not a key",
            "text in base64",
        ),
    ],
)
def test_what_is_wrong_is_told_before_the_first_record(
    spark: Any, tmp_path: Path, uri: str, settings: dict[str, str], problem: str, remedy: str
) -> None:
    job = Job(tmp_path)
    for key, value in settings.items():
        job.env._configuration.set_string(key, value)
    job.config.set_checkpoint_storage_dir(f"{uri}/jobs")
    with pytest.raises((CheckpointStorageError, HoldfastError)) as error:
        job.start()
    message = str(error.value)
    assert problem in message
    assert remedy in message
    assert "\n" not in message
    assert uri in message
    assert not job.diary.exists()
