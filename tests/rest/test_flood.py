"""Two thousand half-sent requests of strangers: the job and its own user notice nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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
        with started("benchmarks.own.half_open", server["url"], str(CONNECTIONS)) as stranger:
            stranger.tell("on")
            assert stranger.hear() >= CONNECTIONS
            job.tell()
            for _ in range(50):
                assert owner.ask("/overview")["slots-total"] == 2
            assert job.hear()["records"] == list(range(1, 1001)), "each number once"
            assert len(owner.ask("/jobs/overview")["jobs"]) == 1
        job.tell()
        assert job.hear() == {"left": 0}
    told = (tmp_path / "log").read_text().splitlines()
    assert len(told) <= 2, told
    assert "connections, which is the limit" in told[0]
