"""Keeps each subtask in a thread of the process that ran it last.

Spark gives a task to any idle worker. If the subtask lives in another worker of the same executor,
this worker only forwards the blocks. Moving the subtask here would cost more: its state would have
to be loaded and its functions opened again, and both workers would hold the state in memory. So

    worker A, which got the task of subtask 1      worker B, where subtask 1 lives

      Spark ─► blocks ───────────────────────────────►  thread of subtask 1
      Spark ◄─ blocks ◄───────────────────────────────

A subtask reports its location in its acknowledgement, and the driver includes it in the next task
(`Location`). It is a hint: if the process is gone, or is already running a subtask, the task runs
in the worker that got it, with state loaded from files, and the subtask lives there from then on. A
subtask always runs in its own thread, since some objects must not be used by another one.
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
from queue import Empty, Queue
from typing import Any, NamedTuple, TypeGuard

from holdfast.errors import InternalError
from holdfast.runtime.epochs.task import FailedRun, Subtask
from holdfast.runtime.network.addresses import Address, Location
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import GONE, Line, Listener, connect, listen
from holdfast.runtime.wire.blocks import Block, decode_header, encode_header
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.logs import begin_subtask, spill

#: how many blocks may wait for Spark while the subtask continues
_AHEAD = 4
#: how long another process may take to accept a connection, and then to answer, in seconds
_PATIENCE = 5.0


class SubtaskPlace(NamedTuple):
    """Identifies a subtask: job, attempt, level and index."""

    job: str
    attempt: int
    level: int
    subtask: int


class Homes:
    """The subtasks that live in this process, and connections to those in other processes."""

    def __init__(self) -> None:
        """Start with no subtasks."""
        self._homes: dict[SubtaskPlace, Home] = {}
        #: the subtasks that are running in this process
        self._at_work: set[SubtaskPlace] = set()
        self._lock = threading.Lock()
        #: listeners for other processes, by the key of their job
        self._listeners: dict[bytes, Listener] = {}

    def run(
        self,
        key: bytes,
        place: SubtaskPlace,
        task: EpochTask,
        blocks: Iterable[Block],
        make: Callable[[], Subtask],
    ) -> Iterator[Block]:
        """Run a subtask in the process where it lives.

        Args:
            key: the key of the job.
            place: identifies the subtask.
            task: the task of the epoch.
            blocks: the input of the subtask.
            make: creates the subtask, if it is to live here.
        """
        self._forget_earlier(place)
        known = task.homes[place.subtask] if task.homes else None
        line = (
            _ask(known.address.opened_by(key), place, task) if self._is_near(known, key) else None
        )
        if line is not None:
            yield from _carry(line, blocks)
            return
        with self._lock:
            self._at_work.add(place)
            home = self._homes.pop(place, None)
        yield from self._run_here(home or Home(make), place, task, blocks)

    def location(self, key: bytes) -> Location:
        """Return the location of this process, for the subtasks of a job that live here."""
        with self._lock:
            if key not in self._listeners:
                self._listeners[key] = listen(self.serve, key=key.hex())
            return Location(_executor(), self._listeners[key].address.without_key())

    def _is_near(self, home: Location | None, key: bytes) -> TypeGuard[Location]:
        """Return whether a subtask lives in another process of this executor."""
        return home is not None and home.executor == _executor() and home != self.location(key)

    def lend(self, place: SubtaskPlace) -> Home | None:
        """Return a subtask that lives here, for one run; None if there is none, or one is running.

        Two subtasks that run in one process would take twice the time.
        """
        with self._lock:
            if self._at_work or place not in self._homes:
                return None
            self._at_work.add(place)
            return self._homes.pop(place)

    def serve(self, line: Line) -> None:
        """Run a subtask on behalf of another process."""
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

    def forget(self, job: str, key: bytes) -> None:
        """Drop the subtasks of a job that has ended, and accept no more connections for it."""
        self._drop(lambda place: place.job == job)
        with self._lock:
            listener = self._listeners.pop(key, None)
        if listener is not None:
            listener.close()

    def _forget_earlier(self, place: SubtaskPlace) -> None:
        """Drop the subtasks of earlier attempts."""
        self._drop(lambda each: each.job == place.job and each.attempt < place.attempt)

    def _drop(self, chosen: Callable[[SubtaskPlace], bool]) -> None:
        with self._lock:
            dropped = [self._homes.pop(place) for place in list(self._homes) if chosen(place)]
        for home in dropped:
            home.close()

    def _run_here(
        self, home: Home, place: SubtaskPlace, task: EpochTask, blocks: Iterable[Block]
    ) -> Generator[Block]:
        """Run a subtask; keep it only if the run succeeded."""
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


class Home:
    """A subtask and its thread."""

    def __init__(self, make: Callable[[], Subtask]) -> None:
        """Prepare a thread; its first run creates the subtask."""
        self._make = make
        self._subtask: Subtask | None = None
        self._thread = ThreadPoolExecutor(1, "subtask")
        # settings that modules made when they were loaded, such as for decimals, apply here too
        self._context = contextvars.copy_context()
        self._context.run(begin_subtask)

    def run(self, task: EpochTask, blocks: Iterable[Block]) -> Iterator[Block]:
        """Run the subtask; yield its blocks while it runs."""
        outlet = _Outlet()
        work = self._thread.submit(self._context.run, self._work, task, blocks, outlet)
        with closing(outlet):
            yield from outlet
        work.result()

    def close(self, ended: bool = False) -> None:
        """Close the subtask; see `Subtask.close`."""
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
    """A queue of blocks from the thread of a subtask to its consumer."""

    def __init__(self) -> None:
        self._queue: Queue[Block | None] = Queue(_AHEAD)
        self._closed = False

    def put(self, block: Block | None) -> None:
        """Add a block; wait while the queue is full."""
        self._queue.put(block)
        if self._closed:
            raise _NobodyTakesError

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Mark the end of the blocks when the body ends."""
        try:
            yield
        finally:
            with suppress(_NobodyTakesError):
                self.put(None)

    def __iter__(self) -> Iterator[Block]:
        while (block := self._queue.get()) is not None:
            yield block

    def close(self) -> None:
        """Close the consumer's side: a thread that waits in ``put`` gets an error."""
        self._closed = True
        with suppress(Empty):
            while True:
                self._queue.get_nowait()


class _NobodyTakesError(Exception):
    """Raised in the thread of a subtask whose task was ended by Spark."""


def _executor() -> str:
    """Return what identifies the workers of one executor: the process that started them.

    Workers of another executor end with that executor, which must not affect tasks of this one.
    """
    return f"{socket.gethostname()}-{os.getppid()}"


def _ask(address: Address, place: SubtaskPlace, task: EpochTask) -> Line | None:
    """Return a connection to the process at an address, if it runs the subtask now."""
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
    """Send blocks to a subtask in another process, and yield those that it returns."""
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
    message = "the worker process in which a subtask lived has ended; find the cause"
    return own[0] if own else InternalError(message)


def _send(line: Line, blocks: Iterable[Block]) -> None:
    """Send blocks, and a message that marks the end."""
    for block in blocks:
        line.send(encode_header(block.header), block.data)
    line.send()


def _receive(line: Line) -> Iterator[Block]:
    """Yield blocks, until there are no more."""
    while (message := line.receive()).head:
        yield Block(decode_header(message.head), message.data)


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled for another process, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    with suppress(Exception):
        restored: Any = pickle.loads(pickle.dumps(error))
        return restored if isinstance(restored, Exception) else InternalError(str(error))
    return InternalError(f"{type(error).__name__}: {error}")
