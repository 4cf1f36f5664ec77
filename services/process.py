"""A server's Java process: started, waited for, killed, and never left behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from services.artifacts import java

#: in seconds, for a machine that is slow and busy
LONGEST_START = 400
LONGEST_STOP = 20

#: Waits until the process that started it ends, even by a kill; then ends a process group.
_GUARD = """
import os, signal, sys
sys.stdin.buffer.read()
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


class ServerError(Exception):
    """A server does not start, and what it printed."""


class JavaProcess:
    """One Java process with its log; can be killed and started again.

    Args:
        folder: where it runs and logs; its last part is the server's name.
        arguments: to Java: classes, main class, and what that takes.
        ready: asked until it says yes after a start.
        heap: the most memory for objects.
        on: a command that runs another one, elsewhere; none for this machine.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        ready: Callable[[], bool],
        heap: str = "256m",
        on: Sequence[str] = (),
    ) -> None:
        """Start nothing yet."""
        self.log = folder / "log"
        self.folder = folder
        options = [f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", marker(folder)]
        self._command = [*on, java(), *options, *arguments]
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, f"{self.folder.name} does not run"
        return self._process.pid

    def start(self, *, outlives: bool = False) -> None:
        """Start, and wait until it is ready.

        Args:
            outlives: whether it goes on when this process ends.

        Raises:
            ServerError: when it ends instead, or takes too long.
        """
        assert self._process is None, f"{self.folder.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        if not outlives:
            guard = [sys.executable, "-I", "-S", "-c", _GUARD, str(self._process.pid)]
            self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self._wait(self._process)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it at once, without a chance to put anything in order."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait; kill it if it takes too long."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(LONGEST_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + LONGEST_START
        while not self._ready():
            if process.poll() is not None or time.monotonic() > deadline:
                printed = self.log.read_text(errors="replace")[-3000:]
                raise ServerError(f"{self.folder.name} did not start: {printed}")
            time.sleep(0.05)


def marker(folder: Path) -> str:
    """An argument that tells the process of a folder from all others."""
    return f"-Dholdfast.service={folder}"


def end(pid: int, folder: Path) -> bool:
    """End a process that was left running on purpose; whether there was one.

    Only if it is the one of this folder: another may have got its number since.
    """
    if not runs(pid, folder):
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + LONGEST_STOP
    while runs(pid, folder):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return True


def runs(pid: int, folder: Path) -> bool:
    """Whether the process of a folder is there, with this id."""
    command = ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return marker(folder) in shown and not shown.startswith("Z")


def free_port() -> int:
    """A port of this machine that nobody listens to.

    It is not one of those that the system gives to outgoing connections, one of which could have
    taken it when a server is started again.
    """
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody does."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False
