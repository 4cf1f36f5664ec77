"""The driver's desk: answers requests of the job's processes, apart from the tasks of epochs.

They connect as all peers do, and prove that they have the job's key (`peers`). There are two kinds
of requests:

    sources   Where the process of a source function is. The first process that claims a source gets
              it; a second one, started by a task that Spark ran twice, is rejected and exits. The
              connection of a claim stays open until the attempt, the driver or the process ends.
    files     Access to the files in one directory of the driver, for a job without a storage that
              all hosts share (`driver_files`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from holdfast.errors import InternalError
from holdfast.filesystem.local import LOCAL
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.peers import GONE, Line, Listener, connect

#: how long the driver may take to accept a connection, and then to answer, in seconds
_PATIENCE: Final = 60.0

#: the allowed operations on the driver's files, and how many of the arguments are paths
CALLS: Final = {
    "read": 1,
    "write": 1,
    "move": 2,
    "delete": 1,
    "delete_tree": 1,
    "delete_if_empty": 1,
    "list_directory": 1,
    "status": 1,
    "make_directories": 1,
    "sync": 1,
}


class SourcePlace(NamedTuple):
    """Identifies a source function: attempt, number of the operator, and subtask."""

    attempt: int
    operator: int
    subtask: int


class SourceState(NamedTuple):
    """What is known about the process of a source function.

    Attributes:
        address: the address of the process, without its key; None if it was not claimed yet.
        over: the process or the attempt has ended.
    """

    address: Address | None = None
    over: bool = False


class Desk:
    """Answers requests of a job's processes, each connection in a thread of its own.

    Attributes:
        address: where processes connect.
    """

    def __init__(
        self, listen: Callable[[Callable[[Line], None]], Listener], root: Path, host: str = ""
    ) -> None:
        """Listen for connections.

        Args:
            listen: starts a listener for processes.
            root: the directory whose files are accessible.
            host: the address of the driver for other hosts; by default the one it listens on.
        """
        self._root = os.path.realpath(root)
        self._attempt: int | None = None
        self._sources: dict[SourcePlace, SourceState] = {}
        self._claims: list[Line] = []
        self._lock = threading.Lock()
        self._answers: dict[str, Callable[..., object]] = {"find": self._find, "call": self._call}
        self._listener = listen(self._serve)
        own = self._listener.address
        self.address = replace(own, host=host) if host else own

    def begin_attempt(self, attempt: int) -> None:
        """Accept the processes of source functions of this attempt."""
        self.end_attempt()
        with self._lock:
            self._attempt = attempt

    def end_attempt(self) -> None:
        """End the processes of source functions, and accept no more."""
        with self._lock:
            self._attempt = None
            self._sources = {}
            lines, self._claims = self._claims, []
        for line in lines:
            line.hang_up()

    def close(self) -> None:
        """Stop answering requests."""
        self.end_attempt()
        self._listener.close()

    def _serve(self, line: Line) -> None:
        while True:
            what, *given = line.hear()
            if what == "claim":
                self._keep(line, *given)
                return
            line.say(self._answers[what](*given))

    def _find(self, place: SourcePlace) -> SourceState:
        with self._lock:
            if place.attempt != self._attempt:
                return SourceState(over=True)
            return self._sources.get(place, SourceState())

    def _keep(self, line: Line, place: SourcePlace, address: Address) -> None:
        """Keep the connection of the process of a source open, as long as it lives."""
        with self._lock:
            first = place.attempt == self._attempt and place not in self._sources
            if first:
                self._sources[place] = SourceState(address)
                self._claims.append(line)
        try:
            line.say(first)
            if first:
                line.wait()
        finally:
            with self._lock:
                if first and place in self._sources:
                    self._sources[place] = SourceState(over=True)

    def _call(self, method: str, *arguments: Any) -> tuple[Any, OSError | None]:
        """Access a file of the driver; return the result, or the error."""
        if method not in CALLS:
            raise InternalError(f"the driver does not know '{method}'")
        try:
            for path in arguments[: CALLS[method]]:
                self._check(path)
            return getattr(LOCAL, method)(*arguments), None
        except OSError as error:
            return None, error

    def _check(self, path: str) -> None:
        if os.path.commonpath([self._root, os.path.realpath(path)]) != self._root:
            raise PermissionError(f"'{path}' is not in the directory of the job")


class Claim:
    """The connection of a process that claims to run a source."""

    def __init__(self, desk: Address, certificate: bytes, place: SourcePlace, own: Address) -> None:
        """Claim a place for the process that listens at the address ``own``."""
        self._line = connect(desk, _PATIENCE, certificate)
        self._line.say(("claim", place, own.without_key()))
        self.granted: bool = self._line.hear(_PATIENCE)
        if not self.granted:
            self.close()

    def close(self) -> None:
        """Give up the claim."""
        self._line.close()

    def wait(self) -> None:
        """Wait until the attempt or the driver ends."""
        with closing(self), suppress(*GONE):
            self._line.wait()


def ask(desk: Address, certificate: bytes, *request: Any) -> Any:
    """Send a request to the driver, and return the answer.

    Raises:
        PeerError, EOFError, OSError: when the driver does not answer.
    """
    with closing(connect(desk, _PATIENCE, certificate)) as line:
        line.say(request)
        return line.hear(_PATIENCE)
