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
import json
import os
import pickle
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple, NoReturn

from holdfast.errors import InternalError
from holdfast.runtime.blocks import Block, decode_header, encode_header
from holdfast.runtime.logs import begin_subtask, spill
from holdfast.runtime.protocol import EpochTask
from holdfast.runtime.task import FailedRun, Subtask

__all__ = ["Homes", "Place"]

#: blocks that wait for Spark to take them, while the subtask goes on
_AHEAD = 4
#: in seconds: how long the answer to a question may take that costs nothing
_PATIENCE = 5.0
#: in seconds: how long one waits who could not take a call
_BREATH = 0.05

#: the length of a block's data
_SIZE = struct.Struct("<Q")
#: what is wrong with a connection whose other end has gone
_GONE = (EOFError, OSError)


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
        self._server: _Server | None = None

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

    def serve(self, line: _Line) -> None:
        """Run a subtask for another process."""
        place, task = line.hear()
        home = self.lend(place)
        line.say(home is not None)
        if home is None:
            return
        failure = None
        try:
            with closing(self._run_here(home, place, task, line.receive())) as run:
                line.send(run)
        except Exception as error:
            failure = _portable(error)
        line.end()
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

    def _address(self) -> _Address:
        if self._server is None:
            self._server = _Server(self.serve)
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


class _Address(NamedTuple):
    """Where a process can be asked for its subtasks, and the key to prove that one may."""

    path: str
    key: str


def _executor() -> tuple[str, int]:
    """What this process and the other workers of the executor have in common: who started them.

    Those of another executor end with that one. What an executor is asked to do should not.
    """
    return socket.gethostname(), os.getppid()


class _Server:
    """Lets the other workers run the subtasks that live here."""

    def __init__(self, serve: Callable[[_Line], None]) -> None:
        key = secrets.token_hex(32)
        # NB: a name that is no file, where there are such names: nobody has to clean up
        path = f"\0holdfast-{secrets.token_hex(16)}" if sys.platform == "linux" else None
        self._listener = Listener(path, "AF_UNIX", backlog=64, authkey=bytes.fromhex(key))
        self.address = _Address(path or str(self._listener.address), key)
        self._serve = serve
        threading.Thread(target=self._accept, name="homes-of-subtasks", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # as when there is no file descriptor left
                time.sleep(_BREATH)
                continue
            except (EOFError, AuthenticationError):
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with suppress(*_GONE), closing(_Line(connection)) as line:
            self._serve(line)


def _read(registration: Path) -> _Address | None:
    try:
        return _Address(*json.loads(registration.read_text()))
    except OSError:
        return None


def _write(registration: Path, address: _Address) -> None:
    """Say where a subtask lives: at once for all who look, and for nobody else.

    Where there is no such directory, as on another host, nobody gets to know.
    """
    draft = registration.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        registration.parent.mkdir(exist_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(address))
        draft.replace(registration)


def _ask(address: _Address, place: Place, task: EpochTask) -> _Line | None:
    """A line to the process at an address, if it runs the subtask now."""
    try:
        line = _Line(Client(address.path, "AF_UNIX", authkey=bytes.fromhex(address.key)))
    except (*_GONE, AuthenticationError):
        return None
    with suppress(*_GONE):
        line.say((place, task))
        if line.hear(_PATIENCE):
            return line
    line.close()
    return None


def _carry(line: _Line, blocks: Iterable[Block]) -> Iterator[Block]:
    """Bring blocks to a subtask in another process, and give those that come from it."""
    problems: list[BaseException] = []
    carrier = threading.Thread(target=_bring, args=(line, blocks, problems), daemon=True)
    with closing(line):
        carrier.start()
        try:
            yield from line.receive()
            failure = line.hear()
        except _GONE as error:
            raise _lost(problems) from error
        finally:
            line.hang_up()
            carrier.join()
    if failure is not None:
        raise failure


def _bring(line: _Line, blocks: Iterable[Block], problems: list[BaseException]) -> None:
    try:
        line.send(blocks)
        line.end()
    except BaseException as error:
        problems.append(error)
        line.hang_up()


def _lost(problems: list[BaseException]) -> BaseException:
    own = [problem for problem in problems if not isinstance(problem, _GONE)]
    message = "the worker process in which a subtask lived has ended; look for what ended it"
    return own[0] if own else InternalError(message)


class _Line:
    """A connection between two workers, for objects and for blocks.

    One thread may send while another one receives.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # for the data of blocks: a connection would copy it two times more
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    def say(self, message: Any) -> None:
        """Send an object."""
        self._connection.send(message)

    def hear(self, patience: float | None = None) -> Any:
        """The next object; None if it does not come in that time."""
        return self._connection.recv() if self._connection.poll(patience) else None

    def send(self, blocks: Iterable[Block]) -> None:
        """Send blocks."""
        for block in blocks:
            self._connection.send_bytes(_SIZE.pack(len(block.data)) + encode_header(block.header))
            self._socket.sendall(block.data)

    def end(self) -> None:
        """Say that there are no more blocks."""
        self._connection.send_bytes(b"")

    def receive(self) -> Iterator[Block]:
        """Blocks, until there are no more."""
        while head := self._connection.recv_bytes():
            data = memoryview(bytearray(*_SIZE.unpack_from(head)))
            filled = 0
            while filled < len(data):
                filled += self._socket.recv_into(data[filled:]) or self._fail()
            yield Block(decode_header(head[_SIZE.size :]), data)

    def wait(self) -> None:
        """Wait until the other side hangs up; what it still sends is lost."""
        while self._socket.recv(1 << 16):
            pass

    def hang_up(self) -> None:
        """End it, also for threads of both sides that wait at it, which closing would not."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()
        self._connection.close()

    @staticmethod
    def _fail() -> NoReturn:
        raise EOFError


def _portable(error: Exception) -> Exception:
    """An exception for another process, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    with suppress(Exception):
        restored: Any = pickle.loads(pickle.dumps(error))
        return restored if isinstance(restored, Exception) else InternalError(str(error))
    return InternalError(f"{type(error).__name__}: {error}")
