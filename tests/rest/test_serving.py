"""A server comes with a job, costs nothing until somebody looks, and goes with it."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from holdfast.common import Configuration, JobStatus
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.options.rest import RestOptions, SparkPage, rest_options
from holdfast.common.private import NotPrivateError
from holdfast.errors import JobDefinitionError
from holdfast.history.events import JobBegan
from holdfast.history.job import JobHistory
from holdfast.rest.registry import Registration, registered
from holdfast.rest.serving import RestServer, serve
from holdfast.rest.site import EndedJob, Files, LiveJobs
from tests.serving import JOB_ID, Client, LocalJob


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "holdfast-rest"]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


def test_the_settings() -> None:
    options = rest_options(Configuration())
    assert (options.enabled, options.address, options.port, options.default_port) == (
        True,
        "127.0.0.1",
        None,
        8081,
    )
    told = {
        "rest.bind-port": "9000",
        "rest.allowed-hosts": "a.example, B.example;c",
        "rest.token": "t",
    }
    options = rest_options(Configuration(told))
    assert (options.port, options.hosts) == (9000, ("a.example", "b.example", "c"))
    assert "'t'" not in repr(options)
    with pytest.raises(ValueError, match=r"rest\.port must be at least 0"):
        rest_options(Configuration({"rest.port": "-1"}))
    with pytest.raises(JobDefinitionError, match="at most 65535"):
        rest_options(Configuration({"rest.port": "70000"}))
    with pytest.raises(JobDefinitionError, match=r"rest\.spark-ui is TOKEN, and there is no token"):
        rest_options(Configuration({"rest.spark-ui": "token"}))
    assert rest_options(Configuration({"rest.spark-ui": "read"})).spark_ui is SparkPage.READ


def test_a_port_that_is_taken_is_told_before_the_job_runs(job: LocalJob) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(JobDefinitionError, match=rf"127\.0\.0\.1:{port}: .*'rest\.port' to a"):
            serve(job, RestOptions(port=port), job.recorder.page)


def test_without_a_port_in_the_settings_another_one_is_taken(job: LocalJob) -> None:
    first, second = (RestServer(LiveJobs(), RestOptions()) for _ in range(2))
    assert first.url != second.url
    for server in (first, second):
        server.start()
        server.close()


def test_one_setting_turns_it_off(job: LocalJob, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        serve(job, RestOptions(enabled=False), job.recorder.page)()
    assert (threads(), caplog.records) == ([], [])


def test_jobs_share_a_server_that_ends_with_the_last(
    job: LocalJob, caplog: pytest.LogCaptureFixture
) -> None:
    options = RestOptions(port=0)
    with caplog.at_level(logging.INFO):
        leave, leave_too = (serve(job, options, job.recorder.page) for _ in range(2))
    addresses = {record.getMessage().split(" is at ")[1] for record in caplog.records}
    assert len(addresses) == 1, "told once per job, and the same"
    assert len(threads()) == len(registered()) == 1
    leave()
    assert len(threads()) == 1
    leave_too()
    assert (threads(), registered()) == ([], [])


class Mounts:
    """Stands for Spark's web UI: which servers it shows, and whether it can show one."""

    def __init__(self, works: bool = True) -> None:
        self.shown: list[str] = []
        self._works = works

    def __call__(self, url: str) -> Callable[[], None] | None:
        if not self._works:
            return None
        self.shown.append(url)
        return lambda: self.shown.remove(url)


def test_spark_s_web_ui_gets_a_server_of_its_own(job: LocalJob) -> None:
    options, mounts = RestOptions(port=0, spark_ui=SparkPage.READ), Mounts()
    leave, leave_too = (serve(job, options, job.recorder.page, mounts) for _ in range(2))
    (shown,) = mounts.shown
    (listed,) = registered()
    assert shown != listed.url
    with closing(HTTPConnection(shown.removeprefix("http://"), timeout=60)) as connection:
        for path, method, status in (("/jobs", "GET", 200), (f"/jobs/{JOB_ID}", "PATCH", 403)):
            connection.request(method, path)
            with connection.getresponse() as answer:
                answer.read()
                assert answer.status == status
    leave()
    assert (mounts.shown, len(threads())) == ([shown], 2)
    leave_too()
    assert (mounts.shown, threads()) == ([], [])


@pytest.mark.parametrize("option", [SparkPage.OFF, SparkPage.READ])
def test_unless_it_is_not_wanted_or_not_possible(job: LocalJob, option: SparkPage) -> None:
    mounts = Mounts(works=option is SparkPage.OFF)
    leave = serve(job, RestOptions(port=0, spark_ui=option), job.recorder.page, mounts)
    assert (mounts.shown, len(threads())) == ([], 1)
    leave()
    assert threads() == []


def test_a_stream_gets_the_last_word_and_ends(job: LocalJob) -> None:
    """A page sees that its job has ended, and the end of the job does not wait for the page."""
    live = LiveJobs()
    live.add(job)
    server = RestServer(live, RestOptions(port=0))
    server.start()
    with closing(HTTPConnection(server.url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", f"/jobs/{JOB_ID}/live")
        with connection.getresponse() as stream:
            assert stream.readline() == b"event: job\n"
            job.recorder.status(JobStatus.RUNNING)
            server.close()
            assert stream.read().count(b"event: job\n") == 1
    assert threads() == []


def test_the_end_of_a_job_waits_until_a_client_knows_its_savepoint(job: LocalJob) -> None:
    """A job that is stopped has ended a moment after its savepoint; who asked must hear of it."""
    live = LiveJobs()
    live.add(job)
    server = RestServer(live, RestOptions(port=0))
    server.start()
    ask = Client(server)
    request = ask.job("/checkpoints", "POST").json["request-id"]
    job.run.epoch()
    end = threading.Thread(target=server.close, args=(60.0,))
    end.start()
    assert ask.job(f"/checkpoints/{request}").json["status"] == {"id": "COMPLETED"}
    end.join(30)
    assert not end.is_alive(), "it does not wait any longer"


def test_jobs_that_have_ended_are_shown_for_a_while(job: LocalJob) -> None:
    live = LiveJobs()
    live.add(job)
    live.end(job)
    (shown,) = live.jobs()
    assert isinstance(shown, EndedJob)
    for number in range(60):
        history = JobHistory([JobBegan(f"{number:032x}", "x", number, "", 1, {}, {})])
        live.end(EndedJob(history))
    assert len(live.jobs()) == 50
    assert live.job(f"{59:032x}") is not None


def test_nothing_is_loaded_before_somebody_asks() -> None:
    program = """
import sys, holdfast.rest.serving as s
from holdfast.rest.site import EndedJob, Files, LiveJobs
from holdfast.common.options.rest import RestOptions
server = s.RestServer(LiveJobs(), RestOptions(port=0)); server.start()
print({"starlette", "uvicorn", "anyio", "prometheus_client"} & set(sys.modules))
import urllib.request
print(urllib.request.urlopen(server.url + "/jobs").read().decode())
print("starlette" in sys.modules)
server.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split("\n")[:3] == ["set()", '{"jobs":[]}', "True"], done.stderr
    assert done.stderr == ""


# How the command line finds servers


def test_a_server_of_ended_jobs_is_not_listed(tmp_path: Path) -> None:
    server = RestServer(Files([tmp_path]), RestOptions(port=0))
    server.start()
    assert registered() == []
    server.close()


def test_a_registration_is_the_user_s_alone(own_registry: Path) -> None:
    registration = Registration("http://127.0.0.1:1", "secret")
    (file,) = own_registry.glob("*/server.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_registry.stat().st_mode) == 0o700
    (entry,) = registered()
    assert (entry.url, entry.token, entry.process) == ("http://127.0.0.1:1", "secret", os.getpid())
    registration.remove()
    assert registered() == []


def test_what_a_killed_process_left_is_removed(own_registry: Path) -> None:
    program = """
import os, signal
from holdfast.rest.registry import Registration
kept = Registration("http://127.0.0.1:1", "secret")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert len(list(own_registry.iterdir())) == 1, "what was left"
    assert registered() == []
    assert list(own_registry.iterdir()) == []


def test_garbage_in_the_registry_is_passed_over(own_registry: Path) -> None:
    registration = Registration("http://127.0.0.1:1", "secret")
    with OwnDirectory(own_registry, "server") as other:
        for garbage in (json.dumps({"url": 1}), "x" * 100_000):
            (other / "server.json").write_text(garbage)
            assert len(registered()) == 1
        (other / "server.json").unlink()
        os.mkfifo(other / "server.json")
        assert len(registered()) == 1
    registration.remove()


def test_a_directory_that_others_can_write_to_is_refused(own_registry: Path) -> None:
    own_registry.mkdir()
    own_registry.chmod(0o777)
    with pytest.raises(NotPrivateError, match=r"has mode 0777.*remove it"):
        registered()


def test_a_link_instead_of_the_directory_is_refused(own_registry: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    own_registry.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPrivateError, match="is not a directory"):
        registered()
