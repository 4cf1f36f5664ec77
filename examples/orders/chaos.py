"""Runs the program as a process of its own, rescales the job, kills the program, starts it again.

The kill is a real one: SIGKILL, to the Python process that is Spark's driver. Nothing of it can
react; its JVM and its workers find themselves alone and end. The same command, started again, goes
on from the last completed checkpoint. Before that, the job gets another parallelism while it runs,
as with ``holdfast rescale``.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import IO

import msgspec

from examples.orders.progress import Progress
from examples.orders.story import RUNNING, Story
from examples.orders.view import View
from holdfast.rest.client import find_job, jobs_of, servers

__all__ = ["Chaos", "DriverFailed", "Supervisor", "this_program"]

#: how long a program may take to end when it is asked to
_PATIENCE = 20.0
#: how often something is shown while the program tells nothing, in seconds
_SHOW_EVERY = 0.5

_decode = msgspec.json.Decoder(Progress).decode


class DriverFailed(Exception):
    """The program ended with an error; the message has the end of its log."""


@dataclass(frozen=True)
class Chaos:
    """What is done to the program; each number counts the events that it has read.

    Attributes:
        rescale_after: rescale the job once.
        rescale_to: its parallelism then.
        kill_after: kill it once, when it has a checkpoint to go on from and is not being rescaled.
        kill_at_last: kill it then, even if it is being rescaled.
    """

    rescale_after: int | None = None
    rescale_to: int = 0
    kill_after: int | None = None
    kill_at_last: int | None = None


class Supervisor:
    """Starts the program, as often as needed.

    Attributes:
        story: what happened so far.
        kills: how many were killed.
    """

    def __init__(self, command: Sequence[str], log: Path, view: View) -> None:
        """Take the command of the program; it prints a `Progress` per line."""
        self._command = list(command)
        self._log = log
        self._view = view
        self.story = Story()
        self.kills = 0
        #: the rescaling was told of
        self._told = False
        self._rescaling: Future[str] | None = None

    def run(self, chaos: Chaos) -> None:
        """Run the program to its end.

        Raises:
            DriverFailed: when it ends with an error.
        """
        while not self._run_once(chaos):
            pass

    def _run_once(self, chaos: Chaos) -> bool:
        """Run the program until it ends or is killed; whether it came to its end."""
        with self._program() as program:
            self.story.begin(program.pid)
            self._view.update(self.story.now())
            for progress in _told(program):
                if progress is None:
                    self._view.update(self.story.now())
                    continue
                self._view.update(self.story.tell(progress))
                self._disturb(program, progress, chaos)
                self._note_rescaling()
            code = program.wait()
        self.story.end()
        if code == -signal.SIGKILL:
            return False
        if code != 0:
            raise DriverFailed(f"the driver ended with code {code}:\n{self._tail()}")
        return True

    def _disturb(
        self, program: "subprocess.Popen[bytes]", progress: Progress, chaos: Chaos
    ) -> None:
        """Do what is to be done at this moment, if anything."""
        rescales = chaos.rescale_after is not None and not self._told
        kill_after = chaos.kill_at_last if rescales else chaos.kill_after
        if not self.kills and _is_ready(progress, kill_after):
            os.kill(program.pid, signal.SIGKILL)
            self.kills += 1
            if self._rescaling is not None and not self._rescaling.done():
                self._rescaling = None  # it died with the driver: the next one is rescaled
            text = f"kill -9 of the driver, process {program.pid}; it is started again"
            self.story.happened(text, "killed")
        elif self._rescaling is None and _is_ready(progress, chaos.rescale_after):
            self._rescaling = _rescale(progress, chaos.rescale_to)

    def _note_rescaling(self) -> None:
        """Tell of the rescaling, when it is done."""
        if self._rescaling is None or self._told or not self._rescaling.done():
            return
        self._told = True
        error = self._rescaling.exception()
        if error is None:
            self.story.happened(self._rescaling.result(), "rescaled")
        else:
            self.story.happened(f"not rescaled: {error}", "")

    @contextmanager
    def _program(self) -> Iterator["subprocess.Popen[bytes]"]:
        """The program, in a group of its own: Ctrl-C is for us, and none of it outlives us."""
        with self._log.open("ab") as log:
            program = self._start(log)
        try:
            yield program
        except BaseException:
            program.send_signal(signal.SIGINT)
            raise
        finally:
            _end(program)

    def _start(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def _rescale(progress: Progress, parallelism: int) -> "Future[str]":
    """Give the job another parallelism, in a thread; the result tells of it."""

    def rescale() -> str:
        job = find_job(jobs_of(servers()), progress.job)
        job.do(f"/rescaling?parallelism={parallelism}", "/rescaling", method="PATCH")
        return f"rescaled from {progress.subtasks} to {parallelism} subtasks per operator"

    return ThreadPoolExecutor(1).submit(rescale)


def _told(program: "subprocess.Popen[bytes]") -> Iterator[Progress | None]:
    """What the program tells, line by line; None now and then while it tells nothing."""
    lines: Queue[bytes] = Queue()

    def read() -> None:
        assert program.stdout is not None
        for line in program.stdout:
            lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=_SHOW_EVERY)
        except Empty:
            yield None
            continue
        if not line:
            return
        yield _decode(line)


def _is_ready(progress: Progress, after: int | None) -> bool:
    """Whether it is a good moment: so many events are read, and there is a checkpoint."""
    if after is None or progress.events < after or progress.status != RUNNING:
        return False
    return any(one.status == "COMPLETED" for one in progress.checkpoints)


def _end(program: "subprocess.Popen[bytes]") -> None:
    """Wait for the program and for all that it started; not for ever."""
    if program.stdout is not None:
        program.stdout.close()
    deadline = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < deadline:
            program.poll()
            os.killpg(program.pid, 0)
            time.sleep(0.05)
    except ProcessLookupError:
        return
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def this_program(arguments: Sequence[str]) -> list[str]:
    """The command that started this program, with these arguments instead of its own.

    So what ``holdfast run`` was told, such as the master, holds for the new program, too.
    """
    own = len(sys.orig_argv) - len(sys.argv[1:])
    return [sys.executable, *sys.orig_argv[1:own], *arguments]
