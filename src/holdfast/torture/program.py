"""A run of a program: its process, started again whenever a fault ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.checkpoint.directory import METADATA
from holdfast.torture.order import VARIABLE, Order, write_order

#: interval of looking whether something has happened, in seconds
_LOOK: Final = 0.02
_TAIL: Final = 4_000


class ProgramEndedError(Exception):
    """The program ended while something was expected of it.

    Attributes:
        code: its exit code.
    """

    def __init__(self, code: int, what: str) -> None:
        """Say what was expected."""
        super().__init__(f"the program ended with exit code {code} before {what}")
        self.code = code


class ProgramStuckError(Exception):
    """Something that was expected of the program took too long."""


class ProgramRun:
    """The process of a program.

    Attributes:
        order: the run.
        process: the process that runs now.
        starts: how often it was started.
    """

    def __init__(self, order: Order, command: list[str], patience: float) -> None:
        """Start the program.

        Args:
            order: the run.
            command: what runs an order; the path of the order is appended.
            patience: how long anything may take, in seconds.
        """
        self.order = order
        self.patience = patience
        self.starts = 0
        self._command = [*command, str(write_order(order))]
        self._stdout = (order.path / "stdout").open("ab")
        self._log = (order.path / "log").open("ab")
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=self._log,
            # NB: so that everything it has started can be ended with it
            start_new_session=True,
            env={**os.environ, VARIABLE: str(self.order.output), "PYTHONUNBUFFERED": "1"},
        )

    def restart(self) -> None:
        """Start the program again, after its process has ended."""
        self.process.wait()
        self.process = self._start()

    def kill(self) -> int:
        """Kill the process; returns its pid."""
        pid = self.process.pid
        self.process.kill()
        self.process.wait()
        return pid

    def wait_until(
        self, reached: Callable[[], bool], what: str, patience: float | None = None
    ) -> None:
        """Wait until something has happened.

        Raises:
            ProgramEndedError: when the program ends before.
            ProgramStuckError: when it takes too long.
        """
        patience = self.patience if patience is None else patience
        deadline = time.monotonic() + patience
        while not reached():
            code = self.process.poll()
            if code is not None:
                raise ProgramEndedError(code, what)
            if time.monotonic() > deadline:
                raise ProgramStuckError(f"it took longer than {patience:.0f} s until {what}")
            time.sleep(_LOOK)

    def finish(self, patience: float) -> int:
        """Wait for the end of the program, and return its exit code.

        Raises:
            ProgramStuckError: when it takes too long.
        """
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            message = f"the program does not end within {patience:.0f} s after the last fault"
            raise ProgramStuckError(message) from None

    def close(self) -> None:
        """End everything that is left of the program."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._end_family()
        self._stdout.close()
        self._log.close()

    def _end_family(self) -> None:
        """Kill what a process has left in its process group: the JVM of Spark, and workers."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS has the latter for zombies
            return

    @property
    def log(self) -> str:
        """Return the end of what the program wrote to standard error."""
        return (self.order.path / "log").read_text(errors="replace")[-_TAIL:]

    def checkpoints(self) -> int:
        """Return the id of the last complete checkpoint of any job, or 0."""
        return latest_checkpoint(self.order.path / "checkpoints")


def latest_checkpoint(directory: Path) -> int:
    """Return the highest id of the complete checkpoints of all jobs in a directory, or 0."""
    found = directory.glob(f"*/chk-*/{METADATA}")
    return max((int(path.parent.name.removeprefix("chk-")) for path in found), default=0)


def child_command(module: str) -> list[str]:
    """Return the command that runs a module with this interpreter."""
    return [sys.executable, "-m", module]
