"""A slot: a process in which one subtask of each level lives, each in a thread of its own.

Threads of a slot, and what they wait for:

    the slot's own       messages of the driver
    one per peer         messages of another slot; they never wait for anything else, so whoever
                         sends to this slot waits for credit only, never for the connection
    one per subtask      something to do (`ResidentSubtask.wait`), or room on a channel
    one per subtask      states to write, and the storage (`StateWriter`)
    one                  the next time to say that the slot lives
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import HoldfastError, InternalError, JobExecutionError
from holdfast.printable import get_logger
from holdfast.runtime.addresses import Address
from holdfast.runtime.failures import OperatorFailed, describe_engine_error
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import begin_subtask, spill
from holdfast.runtime.peers import GONE, PeerError, connect, listen
from holdfast.runtime.protocol import EpochTask, Failure
from holdfast.runtime.resident.carrier import PATIENCE, Carrier, Place
from holdfast.runtime.resident.channels import Leaving
from holdfast.runtime.resident.messages import (
    Frame,
    Hello,
    Say,
    Welcome,
    Wire,
    decode_credited,
    decode_query,
    decode_round,
    decode_stop,
    decode_welcome,
    encode,
)
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.queries import answer
from holdfast.runtime.resident.subtask import ResidentSubtask

__all__ = ["Make", "Slot", "SlotLostError", "failure_of"]

#: how long the subtasks may take to end, in seconds
_LAST_WORDS: Final = 5.0
#: how long those may take that are not in a function that takes long, in seconds
_MOMENT: Final = 0.3

_logger = get_logger(__name__)

#: makes the subtask of a level and a number, given what carries its blocks
Make = Callable[[int, int, Post], ResidentSubtask]


class SlotLostError(HoldfastError):
    """A slot, or the driver, cannot be reached any more."""


class Slot:
    """One slot of an attempt; `serve` runs it to the end of the attempt."""

    def __init__(
        self,
        job: JobCode,
        attempt: int,
        number: int,
        make: Make,
        heartbeat: float = 10.0,
        tidy: Callable[[], object] = lambda: None,
    ) -> None:
        """Make nothing yet.

        Args:
            job: what to run.
            attempt: of which number.
            number: of the slot; the driver gives it another one that suits its host.
            make: makes its subtasks.
            heartbeat: a driver that is silent for so many seconds has gone.
            tidy: called now and then, while the subtasks work.
        """
        self._tidy = tidy
        self._job = job
        self._attempt = attempt
        self._number = number
        self._make = make
        self._heartbeat = heartbeat
        self._subtasks: dict[Place, ResidentSubtask] = {}
        self._threads: list[threading.Thread] = []
        #: the threads whose subtasks have not begun to leave
        self._at_work: set[int] = set()
        #: whether the job is over, not only the attempt
        self._ended = False

    def serve(self, driver: Address, host: str) -> None:
        """Work for the driver at an address until it says that the attempt is over.

        ``host``: the address at which other slots find this one.

        Raises:
            SlotLostError: when the driver has gone, or other slots cannot be reached.
        """
        carriers: list[Carrier] = []
        come = threading.Event()

        def meet(line: Any) -> None:
            come.wait(PATIENCE)
            carriers[0].meet(line)

        listener = listen(meet, host, driver.key, self._job.certificate, self._job.ports)
        try:
            carrier, welcome = self._introduce(driver, listener.address)
            carriers.append(carrier)
            come.set()
            try:
                self._work(carrier, welcome, driver.key)
            finally:
                self._leave(carrier)
        except (*GONE, PeerError) as error:
            raise self._lost(error) from error
        finally:
            listener.close()

    def _introduce(self, driver: Address, own: Address) -> tuple[Carrier, Welcome]:
        """Call the driver, and take the number that it gives; returns what carries blocks then."""
        wire = Wire(connect(driver, PATIENCE, self._job.certificate))
        try:
            wire.send(Say.HELLO, data=encode(self._hello(own)))
            frame = wire.receive()
            if frame.kind != Say.WELCOME:
                raise InternalError(f"the driver sent a message of kind {frame.kind} for a welcome")
            welcome = decode_welcome(frame.data)
            self._number = welcome.slot
            carrier = Carrier(self._job, self._hello(own), wire)
            self._make_subtasks(carrier)
        except BaseException:
            wire.close()
            raise
        return carrier, welcome

    def _lost(self, error: BaseException) -> SlotLostError:
        return SlotLostError(f"slot {self._number} has lost the driver: {error!r}")

    def _hello(self, own: Address) -> Hello:
        return Hello(
            self._job.id,
            self._attempt,
            self._number,
            own.host,
            own.port,
            socket.gethostname(),
            os.getpid(),
        )

    def _make_subtasks(self, carrier: Carrier) -> None:
        for level in self._job.plan.levels:
            if self._number < level.parallelism:
                subtask = self._make(level.index, self._number, carrier)
                self._subtasks[level.index, self._number] = subtask
                carrier.add(level.index, subtask.put)

    def _work(self, carrier: Carrier, welcome: Welcome, key: str) -> None:
        """Find the other slots, and do what the driver says until the attempt is over."""
        missing = carrier.call(welcome, key)
        if missing:
            message = f"slot {self._number} was not called by slots {missing}"
            raise SlotLostError(f"{message} within {PATIENCE:g} s")
        carrier.driver.send(Say.READY)
        threading.Thread(
            target=self._live, args=(carrier,), name="holdfast-alive", daemon=True
        ).start()
        carrier.watch(self._heartbeat)
        while not self._obey(carrier, carrier.driver.receive()):
            pass

    def _obey(self, carrier: Carrier, frame: Frame) -> bool:
        """Do what the driver says; returns whether the attempt is over."""
        if frame.kind == Say.ROUND:
            self._begin_round(carrier, decode_round(frame.data).unpacked())
        elif frame.kind == Say.CREDIT:
            carrier.grant_results(decode_credited(frame.data).bytes)
        elif frame.kind == Say.QUERY:
            query = decode_query(frame.data)
            subtask = self._subtasks[query.level, query.subtask]
            subtask.call(
                lambda: carrier.driver.send(Say.ANSWER, data=encode(answer(query, subtask.look_up)))
            )
        elif frame.kind == Say.STOP:
            self._ended = decode_stop(frame.data).ended
            return True
        return False

    def _begin_round(self, carrier: Carrier, tasks: tuple[EpochTask, ...]) -> None:
        for task in tasks:
            subtask = self._subtasks.get((task.level, self._number))
            if subtask is not None:
                subtask.hear(task)
        if not self._threads:
            self._threads = [self._drive(carrier, place) for place in self._subtasks]

    def _live(self, carrier: Carrier) -> None:
        """Tell the others, now and then, that this slot lives."""
        with suppress(*GONE):
            while not carrier.leaving:
                carrier.say_alive()
                self._tidy()
                time.sleep(self._heartbeat / 5)

    # Subtasks

    def _drive(self, carrier: Carrier, place: Place) -> threading.Thread:
        # what modules have set when they were loaded, as for decimals, holds here as well
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run,
            args=(self._run, carrier, place),
            name=f"subtask-{place[0]}-{place[1]}",
            daemon=True,
        )
        thread.start()
        return thread

    def _run(self, carrier: Carrier, place: Place) -> None:
        begin_subtask()
        subtask = self._subtasks[place]
        self._at_work.add(threading.get_ident())
        try:
            while not carrier.leaving:
                if not subtask.step():
                    subtask.wait()
        except Leaving:
            pass
        except BaseException as error:
            with suppress(Leaving):
                subtask.report(failure_of(place, error))
        finally:
            self._at_work.discard(threading.get_ident())
            subtask.leave()
            spill()

    def _leave(self, carrier: Carrier) -> None:
        """End everything, whatever it is doing."""
        carrier.leave()
        for subtask in self._subtasks.values():
            subtask.bell.ring()
        if not self._join(_MOMENT):
            # a function that takes long is left in its middle, as soon as it is back in Python
            for thread in list(self._at_work):
                _raise_in(thread, Leaving)
            self._join(_LAST_WORDS)
        carrier.close()
        if any(thread.is_alive() for thread in self._threads):
            # a user's function does not come back: nothing of this attempt may go on
            _logger.warning("a subtask of slot %d did not end; its process does", self._number)
            spill()
            os._exit(1)
        if self._ended:
            # NB: when all have left, for one may have done so before it was known
            for subtask in self._subtasks.values():
                subtask.forget()

    def _join(self, seconds: float) -> bool:
        """Wait for all subtasks; returns whether they have ended."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in another thread, when it comes to its next instruction of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def failure_of(place: Place, error: BaseException) -> Failure:
    """Return what a subtask that raised this tells the driver."""
    if isinstance(error, OperatorFailed):
        return error.failure
    if isinstance(error, HoldfastError):
        return describe_engine_error(error)
    # one that ends a process, as sys.exit() does, is no fault of ours
    kind = InternalError if isinstance(error, Exception) else JobExecutionError
    unexpected = kind(f"subtask {place[1]} of level {place[0]} failed: {error!r}")
    unexpected.add_note("".join(traceback.format_exception(error)))
    return describe_engine_error(unexpected)
