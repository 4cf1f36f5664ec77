"""Runs the program as a process of its own, kills it in the middle, and starts it again.

The kill is a real one: SIGKILL, to the Python process that is Spark's driver. Nothing of it can
react; its JVM and its workers find themselves alone and end. The same command, started again, goes
on from the last completed checkpoint.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from examples.orders.progress import Incident, Progress
from examples.orders.view import View

__all__ = ["DriverFailed", "Supervisor", "this_program"]

#: how long a program may take to end when it is asked to
_PATIENCE = 20.0

_decode = msgspec.json.Decoder(Progress).decode


class DriverFailed(Exception):
    """The program ended with an error; the message has the end of its log."""


class Supervisor:
    """Starts the program, as often as needed.

    Attributes:
        incidents: what happened to the programs so far.
        kills: how many were killed.
    """

    def __init__(self, command: Sequence[str], log: Path, view: View) -> None:
        """Take the command of the program; it prints a `Progress` per line."""
        self._command = list(command)
        self._log = log
        self._view = view
        self.incidents: list[Incident] = []
        self.kills = 0

    def run(self, kill_after: int | None) -> None:
        """Run the program to its end.

        Args:
            kill_after: kill it once, when it has read so many events and has a checkpoint to go on
                from.

        Raises:
            DriverFailed: when it ends with an error.
        """
        while not self._run_once(kill_after if not self.kills else None):
            self._happened(f"kill -9 of the driver, process {self._pid}; it is started again")

    def _run_once(self, kill_after: int | None) -> bool:
        """Run the program until it ends or is killed; whether it came to its end."""
        last = Progress("STARTING")
        self._view.update(last, self.incidents)
        with self._program() as program:
            assert program.stdout is not None
            for line in program.stdout:
                last = _decode(line)
                self._view.update(last, self.incidents)
                if kill_after is not None and _is_ready(last, kill_after):
                    os.kill(program.pid, signal.SIGKILL)
                    self.kills += 1
                    kill_after = None
            code = program.wait()
        self.incidents += last.incidents
        if code == -signal.SIGKILL:
            return False
        if code != 0:
            raise DriverFailed(f"the driver ended with code {code}:\n{self._tail()}")
        return True

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
        program = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        self._pid = program.pid
        return program

    def _happened(self, text: str) -> None:
        self.incidents.append(Incident(time.time(), text))

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def _is_ready(progress: Progress, kill_after: int) -> bool:
    """Whether a kill would now be a good test."""
    complete = any(one.status == "COMPLETED" for one in progress.checkpoints)
    return progress.status == "RUNNING" and progress.events >= kill_after and complete


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
    """The command that starts this package again."""
    return [sys.executable, "-m", "examples.orders", *arguments]
