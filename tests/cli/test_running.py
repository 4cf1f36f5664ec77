"""The verbs for running jobs, against a server in this process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.events import Outcome
from holdfast.common.options.rest import RestOptions
from holdfast.history.journal import open_journal
from holdfast.printable import printable, printable_lines
from holdfast.rest.client import Client, RestError
from holdfast.rest.serving import serve
from tests.cli.conftest import Holdfast
from tests.serving import JOB_ID, LocalJob, counting

FORGERY = "orders\nforged\x1b[2J\u202e"


class Running:
    """A job whose epochs run in a thread."""

    def __init__(self, directory: Path, name: str = "orders") -> None:
        settings = {
            "pipeline.name": name,
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(directory / "savepoints"),
        }
        self.job = LocalJob(counting(settings), quota=1)
        store = self.job.job.checkpoints.store
        self.job.recorder.keep_in(
            open_journal(store.files, str(store.directory), JOB_ID, self.job.history, directory)
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._leave = serve(self.job, RestOptions(port=0), self.job.recorder.page)
        self._thread.start()

    def _run(self) -> None:
        while not (self._over.wait(0.02) or self.job.cancelled or self.job.run.finished):
            self.job.run.epoch()

    def wait(self) -> None:
        """Until the job has run its last epoch."""
        self._thread.join(60)

    def close(self) -> None:
        self._over.set()
        self.wait()
        self._leave()
        self.job.recorder.close()
        self.job.run.close()


@pytest.fixture(autouse=True)
def runtime_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def running(runtime_directory: None, tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.close()


def test_the_name_of_a_job_does_not_control_the_terminal(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    made = Running(tmp_path, FORGERY)
    try:
        outputs = [
            holdfast("list").stdout,
            holdfast("status", JOB_ID).stdout,
            holdfast("top", "-n", "1", JOB_ID).stdout,
            holdfast("cancel", JOB_ID).stdout,
        ]
    finally:
        made.close()
    for output in outputs:
        assert printable(FORGERY) in output
        assert output == printable_lines(output)
        assert "\nforged" not in output


def test_no_job_runs(holdfast: Holdfast) -> None:
    done = holdfast("list")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no job runs\n")
    done = holdfast("status", "orders")
    assert done.exit_code == 1
    assert "no job of this user runs on this machine" in done.stderr


def test_list(holdfast: Holdfast, running: Running) -> None:
    lines = holdfast("list").stdout.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATE", "STARTED", "FOR", "SUBTASKS", "PAGE"]
    assert lines[1].split()[:3] == [JOB_ID, "orders", "RUNNING"]
    (job,) = json.loads(holdfast("list", "--json").stdout)
    assert (job["jid"], job["tasks"]["total"]) == (JOB_ID, 5)


@pytest.mark.parametrize("job", [JOB_ID, "orders", "0123", "ord"])
def test_a_job_by_its_id_name_or_beginning(holdfast: Holdfast, running: Running, job: str) -> None:
    done = holdfast("status", job)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"orders  {JOB_ID}\nRUNNING for ")
    assert "\nengine: in-process: holdfast.testing runs it\n" in done.stdout
    assert "Counts -> Collect" in done.stdout
    assert f"#/jobs/{JOB_ID}" in done.stdout


def test_a_job_that_is_not_there(holdfast: Holdfast, running: Running) -> None:
    done = holdfast("status", "other")
    assert done.exit_code == 1
    assert f"starts with 'other'; there are {JOB_ID} (orders)" in done.stderr


def test_status_for_scripts(holdfast: Holdfast, running: Running) -> None:
    told = json.loads(holdfast("status", "--json", "orders").stdout)
    assert set(told) == {"job", "checkpoints", "exceptions"}


def test_top(holdfast: Holdfast, running: Running) -> None:
    done = holdfast("top", "-n", "2", "-i", "0.2", "orders")
    assert done.stdout.count("VERTEX") == 2


def test_ui(holdfast: Holdfast, running: Running) -> None:
    assert holdfast("ui", "--print", "orders").stdout.endswith(f"/#/jobs/{JOB_ID}\n")
    assert holdfast("ui", "--print").stdout.startswith("http://127.0.0.1:")


def test_checkpoint(holdfast: Holdfast, running: Running) -> None:
    assert holdfast("checkpoint", "orders").stdout == "checkpoint 1\n"
    assert json.loads(holdfast("checkpoint", "--json", "orders").stdout) == {"checkpointId": 2}


def test_savepoint(holdfast: Holdfast, running: Running, tmp_path: Path) -> None:
    own = Path(holdfast("savepoint", "orders").stdout.strip())
    assert own.parent == tmp_path / "savepoints"
    done = holdfast("savepoint", "orders", tmp_path / "anywhere")
    assert Path(done.stdout.strip()).parent == tmp_path / "anywhere", done.stderr
    assert holdfast("savepoint", "dispose", own).exit_code == 0
    assert not own.exists()


def test_a_savepoint_that_cannot_be(holdfast: Holdfast, running: Running, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = holdfast("savepoint", "orders", tmp_path / "file")
    assert done.exit_code == 1
    assert "there is no savepoint" in done.stderr


def test_stop(holdfast: Holdfast, running: Running, tmp_path: Path) -> None:
    done = holdfast("stop", "--drain", "orders")
    assert Path(done.stdout.strip()).parent == tmp_path / "savepoints"
    running.wait()
    assert running.job.outcome is Outcome.STOPPED


def test_cancel(holdfast: Holdfast, running: Running) -> None:
    assert holdfast("cancel", "orders").stdout == f"cancelling orders ({JOB_ID})\n"
    assert running.job.cancelled


def test_rescale(holdfast: Holdfast, running: Running) -> None:
    running.job.rescaling.set_result(None)
    done = holdfast("rescale", "orders", "3")
    assert running.job.rescaled_to == 3
    assert done.stdout.splitlines()[-1] == "2  Counts -> Collect"


def test_a_server_that_is_not_there(holdfast: Holdfast) -> None:
    done = holdfast("list", "--url", "http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "no server answers at http://127.0.0.1:1" in done.stderr


def test_history(holdfast: Holdfast, running: Running, tmp_path: Path) -> None:
    holdfast("checkpoint", "orders")
    running.close()
    for place in ("checkpoints", "checkpoints/orders"):
        (job,) = json.loads(holdfast("history", "--json", tmp_path / place).stdout)["jobs"]
        assert (job["jid"], job["name"], job["state"]) == (JOB_ID, "orders", "SUSPENDED")
    running.close = lambda: None  # type: ignore[method-assign]


def test_history_takes_the_settings_of_a_server(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "history", str(tmp_path), "--port", "0"]
    command += ["-D", "rest.read-token=look"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as history:
        try:
            assert history.stdout is not None
            url = history.stdout.readline().split()[-1]
            with pytest.raises(RestError, match="a token is required"):
                Client(url).ask("/jobs")
            assert Client(url, "look").ask("/jobs") == {"jobs": []}
        finally:
            history.kill()
