"""Keeps each subtask in a thread of the process that ran it last.

Spark gives a task to any idle worker of any executor. If the subtask lives in another worker, this
one only forwards the blocks. Moving the subtask here would cost more: its state would have to be
loaded and its functions opened again, and both workers would hold the state in memory. So

    worker A, which got the task of subtask 1      worker B, where subtask 1 lives

      Spark ─► blocks ───────────────────────────────►  thread of subtask 1
      Spark ◄─ blocks ◄───────────────────────────────

A subtask reports its location in its acknowledgement, and the driver includes it in the next task
(`Location`). It is a hint: if the process is gone, or runs another subtask for too long, the task
runs in the worker that got it, with state loaded from files, and the subtask lives there from then
on. A subtask always runs in its own thread, since some objects must not be used by another one.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from queue import Empty, Queue
from typing import Final, NamedTuple

from holdfast.printable import get_logger
from holdfast.runtime.epochs.carrying import Carriage, Network
from holdfast.runtime.epochs.task import FailedRun, Subtask
from holdfast.runtime.network.addresses import Address, Location
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import GONE, Line, Listener, listen
from holdfast.runtime.network.sockets import own_ip
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.logs import begin_subtask, spill

#: how many blocks may wait for Spark while the subtask continues
_AHEAD: Final = 4
#: how long another process may take to accept a connection, and then to answer, in seconds
_PATIENCE = 5.0
#: how long nobody is asked at an address that could not be reached, in seconds
_GIVEN_UP: Final = 60.0
#: bytes of state that a process loads in a second, roughly
_LOADED: Final = 50_000_000

_logger = get_logger(__name__)


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
        #: guards all of this; notified when a subtask ends its work
        self._changed = threading.Condition()
        #: listeners for other processes, by the key of their job
        self._listeners: dict[bytes, list[Listener]] = {}
        #: addresses on other hosts that could not be reached, until when nobody is asked there
        self._unreachable: dict[Address, float] = {}

    def run(
        self,
        network: Network,
        place: SubtaskPlace,
        task: EpochTask,
        blocks: Iterable[Block],
        make: Callable[[], Subtask],
    ) -> Iterator[Block]:
        """Run a subtask in the process where it lives.

        Args:
            network: how other processes of the job are reached.
            place: identifies the subtask.
            task: the task of the epoch.
            blocks: the input of the subtask.
            make: creates the subtask, if it is to live here.
        """
        self._forget_earlier(place)
        known = task.homes[place.subtask] if task.homes else None
        if known is not None and known != self.location(network):
            carriage = self._ask(network, known, place, task)
            if carriage is not None:
                yield from carriage.carry(blocks)
                return
        with self._changed:
            self._at_work.add(place)
            home = self._homes.pop(place, None)
        yield from self._run_here(home or Home(make), place, task, blocks)

    def location(self, network: Network) -> Location:
        """Return the location of this process, for the subtasks of a job that live here.

        Raises:
            CannotListenError: when this process must listen at a port, and none is free.
        """
        with self._changed:
            if network.key not in self._listeners:
                self._listeners[network.key] = self._listen(network)
            near, *far = (each.address.without_key() for each in self._listeners[network.key])
            return Location(_executor(), near, far[0] if far else None)

    def _listen(self, network: Network) -> list[Listener]:
        key = network.key.hex()
        listeners = [listen(self.serve, key=key)]
        if not network.one_host:
            try:
                far = listen(self.serve, own_ip(), key, network.certificate, network.ports)
            except BaseException:
                listeners[0].close()
                raise
            listeners.append(far)
        return listeners

    def _ask(
        self, network: Network, home: Location, place: SubtaskPlace, task: EpochTask
    ) -> Carriage | None:
        """Return a connection to the process of a subtask, if it runs the subtask now."""
        near = home.executor == _executor()
        address = home.address if near or network.one_host else home.far
        if address is None or self._unreachable.get(address, 0.0) > time.monotonic():
            return None
        try:
            line = network.connect(address, _PATIENCE)
        except PeerError as error:
            if not address.socket:
                self._give_up(address, error)
            return None
        silence = None if near else network.silence
        wait = _worth_waiting(task, place.subtask)
        with suppress(*GONE):
            line.say((place, task, silence, wait))
            if line.hear(_PATIENCE + wait):
                return Carriage(line, silence)
        line.close()
        return None

    def _give_up(self, address: Address, error: PeerError) -> None:
        """Ask nobody there for a while: if a firewall drops packets, each attempt takes long."""
        self._unreachable[address] = time.monotonic() + _GIVEN_UP
        if isinstance(error.__cause__, TimeoutError):
            _logger.warning(
                "a subtask lives in another executor, and %s: its state is loaded here instead; "
                "the executors must reach each other at the ports of 'holdfast.port.range'",
                error,
            )

    def lend(self, place: SubtaskPlace, wait: float = 0.0) -> Home | None:
        """Return a subtask that lives here, for one run.

        Two subtasks that run in one process would take twice the time. So another one may first
        come to its end, in ``wait`` seconds. None: it does not, or the subtask does not live here.
        """
        with self._changed:
            if place in self._homes:
                self._changed.wait_for(lambda: not self._at_work, wait)
            if self._at_work or place not in self._homes:
                return None
            self._at_work.add(place)
            return self._homes.pop(place)

    def serve(self, line: Line) -> None:
        """Run a subtask on behalf of another process."""
        place, task, silence, wait = line.hear()
        home = self.lend(place, wait)
        line.say(home is not None)
        if home is None:
            return
        failure = None
        with closing(Carriage(line, silence)) as carriage:
            try:
                with closing(self._run_here(home, place, task, carriage.receive())) as run:
                    carriage.send(run)
            except Exception as error:
                failure = error
                carriage.send(())
            carriage.end(failure)

    def forget(self, job: str, key: bytes) -> None:
        """Drop the subtasks of a job that has ended, and accept no more connections for it."""
        self._drop(lambda place: place.job == job)
        with self._changed:
            listeners = self._listeners.pop(key, [])
        for listener in listeners:
            listener.close()

    def _forget_earlier(self, place: SubtaskPlace) -> None:
        """Drop the subtasks of earlier attempts."""
        self._drop(lambda each: each.job == place.job and each.attempt < place.attempt)

    def _drop(self, chosen: Callable[[SubtaskPlace], bool]) -> None:
        with self._changed:
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
            with self._changed:
                self._at_work.discard(place)
                if lives:
                    self._homes[place] = home
                self._changed.notify_all()


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
    """Return what identifies the workers of one executor: the process that started them."""
    return f"{socket.gethostname()}-{os.getppid()}"


def _worth_waiting(task: EpochTask, subtask: int) -> float:
    """Return for how many seconds to wait while another subtask runs: as long as loading takes.

    If it is in vain, the wait and the loading take twice the time of the better choice, no more.
    """
    return task.heads[subtask].size / _LOADED if task.heads else 0.0
