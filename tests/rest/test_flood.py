"""Two thousand half-sent requests of strangers: the job and its own user notice nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from holdfast.rest.client import Client

ROOT = Path(__file__).parents[2]
CONNECTIONS = 2000


class Process:
    """A program that is told lines, and tells lines."""

    def __init__(self, *command: str, log: IO[str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def tell(self, line: str = "") -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def started(*command: str, log: IO[str] | None = None) -> Iterator[Process]:
    process = Process(*command, log=log)
    try:
        yield process
    finally:
        process.end()


def test_half_open_connections_cost_a_job_nothing(tmp_path: Path) -> None:
    with (
        (tmp_path / "log").open("w") as log,
        started("tests.rest.flooded", str(tmp_path), log=log) as job,
    ):
        server = job.hear()
        owner = Client(server["url"], server["token"])
        attack = ["benchmarks.own.half_open", server["url"], str(CONNECTIONS), "0.5"]
        with started(*attack) as stranger:
            stranger.tell("on")
            assert stranger.hear() >= CONNECTIONS
            for _ in range(50):
                assert owner.ask("/overview")["slots-total"] == 2
            job.tell()
            for _ in range(50):  # NB: the job may end meanwhile, and has no slots then
                assert owner.ask("/overview")["slots-total"] in (0, 2)
            assert job.hear()["records"] == list(range(1, 1001)), "each number once"
            assert len(owner.ask("/jobs/overview")["jobs"]) == 1
        job.tell()
        assert job.hear() == {"left": 0}
    told = (tmp_path / "log").read_text().splitlines()
    assert len(told) <= 2, told
    assert "connections, which is the limit" in told[0]


#: a client connects while the process has no descriptors left; prints the answer and the log
EXHAUSTED = """
import logging, resource, socket, sys, threading, urllib.request
from holdfast.common.options.rest import RestOptions
from holdfast.rest.serving import RestServer
from holdfast.rest.site import LiveJobs

class Log(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage().splitlines()[0])
        told.set()

lines, told = [], threading.Event()
logging.getLogger().addHandler(Log())
server = RestServer(LiveJobs(), RestOptions(port=0))
server.start()
if sys.argv[1] == "later":
    urllib.request.urlopen(server.url + "/overview").close()
host, port = server.url.removeprefix("http://").split(":")
client = socket.socket()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
client.connect((host, int(port)))
client.sendall(b"GET /overview HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
assert told.wait(30)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(client.recv(65536).split(b"\\r\\n")[0].decode())
print(*lines, sep="\\n")
client.close()
server.close()
"""


@pytest.mark.parametrize(
    ("moment", "line"),
    [
        ("first", "the REST server at http://127.0.0.1:"),
        ("later", "the REST server cannot accept a connection: [Errno 24] Too many open files"),
    ],
)
def test_a_server_waits_for_descriptors(moment: str, line: str) -> None:
    command = [sys.executable, "-c", EXHAUSTED, moment]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    answer, *log = done.stdout.splitlines()
    assert answer == "HTTP/1.1 200 OK"
    assert len(log) == 1
    assert log[0].startswith(line)
