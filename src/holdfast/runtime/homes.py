"""Subtasks stay where they are: each lives in a thread of the process that ran it last.

Spark gives a task to any idle worker. If the subtask lives in another one of its executor, this one
only carries the blocks: to bring its state here would cost more, its functions would have to be
opened again, and both would have it in memory. So

    worker A, which got the task of subtask 1      worker B, where subtask 1 lives

      Spark ─► blocks ───────────────────────────────►  thread of subtask 1
      Spark ◄─ blocks ◄───────────────────────────────

A file in the job's directory says where a subtask lives; whoever runs one writes it. It is a hint:
if the process is gone, or has a subtask at work already, the task runs where it came to, with the
state of the files, and the subtask lives there from then on. A subtask always runs in its own
thread, since there are objects that do not bear another one.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import pickle
import socket
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

from holdfast.errors import InternalError
from holdfast.printable import get_logger
from holdfast.runtime.addresses import Address, BadAddressError, read_address, write_address
from holdfast.runtime.blocks import Block, decode_header, encode_header
from holdfast.runtime.logs import begin_subtask, spill
from holdfast.runtime.peers import GONE, Line, Listener, PeerError, connect, listen
from holdfast.runtime.protocol import EpochTask
from holdfast.runtime.task import FailedRun, Subtask

__all__ = ["Homes", "Place"]

#: blocks that wait for Spark to take them, while the subtask goes on
_AHEAD = 4
#: how long another process may take to let this one in, and then to answer, in seconds
_PATIENCE = 5.0

_logger = get_logger(__name__)


class Place(NamedTuple):
    """Which subtask, of which start of which job."""

    job: str
    attempt: int
    level: int
    subtask: int


class Homes:
    """The subtasks that live in this process, and the way to those of others."""

    def __init__(self) -> None:
        """Begin without any."""
        self._homes: dict[Place, Home] = {}
        #: the places of subtasks that are at work in this process
        self._at_work: set[Place] = set()
        self._lock = threading.Lock()
        self._server: Listener | None = None

    def run(
        self,
        directory: str,
        place: Place,
        task: EpochTask,
        blocks: Iterable[Block],
        make: Callable[[], Subtask],
    ) -> Iterator[Block]:
        """Run a subtask where it lives.

        Args:
            directory: of the job.
            place: which one.
            task: of the epoch.
            blocks: that come to it.
            make: makes it, if it has to live here.
        """
        self._forget_earlier(place)
        registration = Path(directory, "homes", "-".join(map(str, (*_executor(), *place))))
        own, registered = self._address(), _read(registration)
        line = None if registered in (None, own) else _ask(registered, place, task)
        if line is not None:
            yield from _carry(line, blocks)
            return
        with self._lock:
            self._at_work.add(place)
            home = self._homes.pop(place, None)
        yield from self._run_here(home or Home(make), place, task, blocks)
        if registered != own and place in self._homes:
            _write(registration, own)

    def lend(self, place: Place) -> Home | None:
        """A subtask that lives here, for one run; None if it does not, or another one is at work.

        Two at work in one process take twice the time.
        """
        with self._lock:
            if self._at_work or place not in self._homes:
                return None
            self._at_work.add(place)
            return self._homes.pop(place)

    def serve(self, line: Line) -> None:
        """Run a subtask for another process."""
        place, task = line.hear()
        home = self.lend(place)
        line.say(home is not None)
        if home is None:
            return
        failure = None
        try:
            with closing(self._run_here(home, place, task, _receive(line))) as run:
                _send(line, run)
        except Exception as error:
            failure = _portable(error)
            line.send()
        line.say(failure)
        line.wait()

    def forget(self, job: str) -> None:
        """Drop the subtasks of a job that has ended."""
        self._drop(lambda place: place.job == job)

    def _forget_earlier(self, place: Place) -> None:
        """Drop what lives here of earlier attempts."""
        self._drop(lambda each: each.job == place.job and each.attempt < place.attempt)

    def _drop(self, chosen: Callable[[Place], bool]) -> None:
        with self._lock:
            dropped = [self._homes.pop(place) for place in list(self._homes) if chosen(place)]
        for home in dropped:
            home.close()

    def _run_here(
        self, home: Home, place: Place, task: EpochTask, blocks: Iterable[Block]
    ) -> Generator[Block]:
        """Run a subtask; it goes on living only if the run came to its end."""
        lives = ended = False
        try:
            yield from home.run(task, blocks)
            lives, ended = not task.closing, task.closing
        except FailedRun:
            return
        finally:
            if not lives:
                home.close(ended)
            with self._lock:
                self._at_work.discard(place)
                if lives:
                    self._homes[place] = home

    def _address(self) -> Address:
        if self._server is None:
            self._server = listen(self.serve)
        return self._server.address


class Home:
    """A subtask and its thread."""

    def __init__(self, make: Callable[[], Subtask]) -> None:
        """Make the subtask with its first run."""
        self._make = make
        self._subtask: Subtask | None = None
        self._thread = ThreadPoolExecutor(1, "subtask")
        # what modules have set when they were loaded, as for decimals, holds here as well
        self._context = contextvars.copy_context()
        self._context.run(begin_subtask)

    def run(self, task: EpochTask, blocks: Iterable[Block]) -> Iterator[Block]:
        """Run the subtask; its blocks come while it goes on."""
        outlet = _Outlet()
        work = self._thread.submit(self._context.run, self._work, task, blocks, outlet)
        with closing(outlet):
            yield from outlet
        work.result()

    def close(self, ended: bool = False) -> None:
        """Let go of the subtask; see `Subtask.close`."""
        self._thread.submit(self._context.run, self._close, ended).result()
        self._thread.shutdown()

    def _work(self, task: EpochTask, blocks: Iterable[Block], outlet: _Outlet) -> None:
        with outlet.ending():
            if self._subtask is None:
                self._subtask = self._make()
            with closing(self._subtask.run(task, blocks)) as run:
                for block in run:
                    outlet.put(block)

    def _close(self, ended: bool) -> None:
        if self._subtask is not None:
            self._subtask.close(ended)
        spill()


class _Outlet:
    """Blocks on their way from the thread of a subtask to whoever takes them."""

    def __init__(self) -> None:
        self._queue: Queue[Block | None] = Queue(_AHEAD)
        self._closed = False

    def put(self, block: Block | None) -> None:
        """Hand a block over; waits while there are too many."""
        self._queue.put(block)
        if self._closed:
            raise _NobodyTakesError

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Say at the end that nothing follows."""
        try:
            yield
        finally:
            with suppress(_NobodyTakesError):
                self.put(None)

    def __iter__(self) -> Iterator[Block]:
        while (block := self._queue.get()) is not None:
            yield block

    def close(self) -> None:
        """Nobody takes any more: who waits in ``put`` gets to know."""
        self._closed = True
        with suppress(Empty):
            while True:
                self._queue.get_nowait()


class _NobodyTakesError(Exception):
    """Raised in the thread of a subtask whose task was ended by Spark."""


def _executor() -> tuple[str, int]:
    """What this process and the other workers of the executor have in common: who started them.

    Those of another executor end with that one. What an executor is asked to do should not.
    """
    return socket.gethostname(), os.getppid()


def _read(registration: Path) -> Address | None:
    """Return where a subtask lives; a file that does not say it is not believed."""
    try:
        return read_address(registration)
    except BadAddressError as error:
        _logger.warning("%s", error)
        return None


def _write(registration: Path, address: Address) -> None:
    """Say where a subtask lives.

    Where there is no such directory, as on another host, nobody gets to know.
    """
    with suppress(OSError):
        registration.parent.mkdir(exist_ok=True)
        write_address(registration, address, replace=True)


def _ask(address: Address, place: Place, task: EpochTask) -> Line | None:
    """A line to the process at an address, if it runs the subtask now."""
    try:
        line = connect(address, _PATIENCE)
    except PeerError:
        return None
    with suppress(*GONE):
        line.say((place, task))
        if line.hear(_PATIENCE):
            return line
    line.close()
    return None


def _carry(line: Line, blocks: Iterable[Block]) -> Iterator[Block]:
    """Bring blocks to a subtask in another process, and give those that come from it."""
    problems: list[BaseException] = []
    carrier = threading.Thread(target=_bring, args=(line, blocks, problems), daemon=True)
    with closing(line):
        carrier.start()
        try:
            yield from _receive(line)
            failure = line.hear()
        except GONE as error:
            raise _lost(problems) from error
        finally:
            line.hang_up()
            carrier.join()
    if failure is not None:
        raise failure


def _bring(line: Line, blocks: Iterable[Block], problems: list[BaseException]) -> None:
    try:
        _send(line, blocks)
    except BaseException as error:
        problems.append(error)
        line.hang_up()


def _lost(problems: list[BaseException]) -> BaseException:
    own = [problem for problem in problems if not isinstance(problem, GONE)]
    message = "the worker process in which a subtask lived has ended; look for what ended it"
    return own[0] if own else InternalError(message)


def _send(line: Line, blocks: Iterable[Block]) -> None:
    """Send blocks, and that there are no more."""
    for block in blocks:
        line.send(encode_header(block.header), block.data)
    line.send()


def _receive(line: Line) -> Iterator[Block]:
    """Blocks, until there are no more."""
    while (message := line.receive()).head:
        yield Block(decode_header(message.head), message.data)


def _portable(error: Exception) -> Exception:
    """An exception for another process, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    with suppress(Exception):
        restored: Any = pickle.loads(pickle.dumps(error))
        return restored if isinstance(restored, Exception) else InternalError(str(error))
    return InternalError(f"{type(error).__name__}: {error}")
