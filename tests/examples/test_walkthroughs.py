"""Does what pages tell a reader to do in a terminal, with the files and the commands of the page.

A ``python`` block with a title is a file; one of the same title further down replaces it. The lines
of ``sh`` blocks are commands. A command is looked up by how it begins, so that what is run here is
what the page says; at the end every command of a page has been run, or is known to be left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka import Kafka

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"(\w+)=\$\((.*)\)")
#: in seconds, for a machine that is slow and busy
LONGEST = 240


class Walk:
    """A reader with a page, in a directory of his own."""

    def __init__(self, page: str, folder: Path, **environment: str) -> None:
        text = (DOCS / page).read_text()
        self.folder = folder
        self._files = FILE.findall(text)
        blocks = SHELL.findall(text)
        self._commands = [line for block in blocks for line in block.splitlines()]
        self._run: set[str] = set()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        runtime = {"PATH": path, "HOLDFAST_RUNTIME_DIR": str(folder / "runtime")}
        self._environment = {**os.environ, **runtime, **environment}

    def save(self, name: str, version: int = 0) -> None:
        """Save a file of the page; of those with this name the first, or a later one."""
        texts = [text for title, text in self._files if title == name]
        (self.folder / name).write_text(texts[version])

    def run(self, beginning: str) -> str:
        """Run a command, and remember what it sets; returns what it prints."""
        command = self._find(beginning)
        assignment = ASSIGNMENT.fullmatch(command)
        done = subprocess.run(
            assignment[2] if assignment else command,
            shell=True,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if assignment:
            self._environment[assignment[1]] = done.stdout.strip()
        return done.stdout

    @contextmanager
    def running(self, beginning: str) -> Iterator[Job]:
        """Run a command in a second terminal; what still runs at the end is killed."""
        # NB: the shell is replaced by the command, so that a kill is one of the command
        command = f"exec {self._find(beginning)}"
        job = Job(command, self.folder, self._environment)
        try:
            yield job
        finally:
            job.kill()

    def left_out(self) -> set[str]:
        """The commands that were not run."""
        return set(self._commands) - self._run

    def _find(self, beginning: str) -> str:
        (command,) = {line for line in self._commands if line.startswith(beginning)}
        self._run.add(command)
        return command


class Job:
    """A command that runs while others do."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._output, self._errors = folder / "output", folder / "errors"
        self._deadline = time.monotonic() + LONGEST
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, shell=True, cwd=folder, env=environment, stdout=output, stderr=errors
            )

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text()

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition, while the command runs."""
        while not reached():
            assert self._process.poll() is None, self._errors.read_text()
            assert time.monotonic() < self._deadline, self._errors.read_text()
            time.sleep(0.02)

    def serves(self) -> bool:
        """Whether it has a web UI; a job that was killed leaves its entry behind."""
        entries = (self._folder / "runtime").glob("holdfast-server-*/server.json")
        return self._process.pid in [json.loads(path.read_text())["process"] for path in entries]

    def wait(self) -> None:
        """Wait for its end."""
        self._process.wait(LONGEST)

    def kill(self) -> None:
        """What ``kill -9`` does."""
        self._process.kill()
        self._process.wait(LONGEST)


def test_every_page_with_files_is_walked_through() -> None:
    pages = {path.name for path in DOCS.rglob("*.md") if FILE.search(path.read_text())}
    assert pages == {"getting_started.md", "tutorial.md"}


def last_checkpoint(directory: Path) -> int:
    """The number of the last one that is complete."""
    return max((int(path.parent.name[4:]) for path in directory.glob("chk-*/_metadata")), default=0)


SUM = re.compile(r"^the sum of 1 to (\d+) is (\d+)\n", re.MULTILINE)


def sums(job: Job) -> list[int]:
    """How far the job has counted, line by line; every sum is right."""
    found = [(int(last), int(total)) for last, total in SUM.findall(job.output)]
    assert [total for _, total in found] == [last * (last + 1) // 2 for last, _ in found]
    return [last for last, _ in found]


def test_getting_started_a_job_is_killed_and_goes_on(tmp_path: Path) -> None:
    walk = Walk("getting_started.md", tmp_path)
    walk.save("sums.py")
    with walk.running("holdfast run --local sums.py") as job:
        job.wait_until(lambda: len(sums(job)) >= 2)
        printed, known = sums(job)[-1], last_checkpoint(tmp_path / "checkpoints" / "sums")
        # the next one may have begun before; the one after it has what is printed
        job.wait_until(lambda: last_checkpoint(tmp_path / "checkpoints" / "sums") >= known + 2)
        job.kill()
    with walk.running("holdfast run --local sums.py") as job:
        job.wait_until(lambda: bool(sums(job)))
        assert sums(job)[0] > printed


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_tutorial(tmp_path: Path, kafka: Kafka) -> None:
    walk = Walk("tutorial.md", tmp_path, BROKER=kafka.address)
    for name in ("payments.py", "spending.py", "test_spending.py", "job.py", "check.py"):
        walk.save(name)
    assert walk.run("python payments.py") == "2000 payments written\n"
    assert walk.run("holdfast info").startswith("job 'cards'")

    def check() -> None:
        assert "none is missing, none is there twice" in walk.run("python check.py")

    with walk.running("holdfast run -p 2 --checkpoint-dir") as job:
        job.wait_until(job.serves)
        check()
        assert "cards" in walk.run("holdfast list")
        assert "payments" in walk.run("holdfast status")
        assert walk.run("holdfast ui").startswith("http://127.0.0.1:")
        job.kill()
    walk.run("python payments.py")

    with walk.running("holdfast run -p 2 --checkpoint-dir") as job:
        job.wait_until(job.serves)
        check()
        walk.run("savepoint=")
        job.wait()
    assert "spent" in walk.run("holdfast state list")
    assert "card-7" in walk.run("holdfast state show")

    walk.save("spending.py", 1)
    assert "2 passed" in walk.run("python -m pytest")
    walk.run("python payments.py")
    with walk.running("holdfast run -p 1") as job:
        job.wait_until(job.serves)
        check()
        walk.run("savepoint=")
        job.wait()
    walk.run("python payments.py")
    with walk.running("holdfast run --master") as job:
        job.wait_until(job.serves)
        check()
        walk.run("holdfast cancel")
        job.wait()

    walk.save("table.py")
    walk.run("holdfast run --local")
    assert walk.run("python -c").endswith(" cards have alerts\n")

    # what prepares the machine, which other tests have
    others = ("make ", ". .venv/", "export BROKER=", "mkdir cards")
    left_out = {line for line in walk.left_out() if not line.startswith(others)}
    # NB: a kill by a pattern would hit what others run; the test kills the process it started
    assert [line[:8] for line in left_out] == ["kill -9 "]
