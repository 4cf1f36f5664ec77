"""A slot: a process in which one subtask of each level lives, each in a thread of its own.

Threads of a slot, and what they wait for:

    the slot's own       messages of the driver
    one per peer         messages of another slot; these threads never wait for anything else, so
                         senders to this slot wait for credit only, never for the connection
    one per subtask      something to do (`ResidentSubtask.wait`), or credit on a channel
    one per subtask      states to write, and the storage (`StateWriter`)
    one                  the time of the next heartbeat
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
from holdfast.runtime.failures import OperatorFailed, describe_engine_error
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import GONE, connect, listen
from holdfast.runtime.resident import messages
from holdfast.runtime.resident.carrier import PATIENCE, Carrier, Place
from holdfast.runtime.resident.channels import Leaving
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.queries import answer
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.wire.protocol import EpochTask, Failure
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import begin_subtask, spill

#: how long the subtasks may take to exit, in seconds
_LAST_WORDS: Final = 5.0
#: how long subtasks may take to exit that are not in a slow function, in seconds
_MOMENT: Final = 0.3

_logger = get_logger(__name__)

#: creates the subtask of a level and a number, given the object that carries its blocks
Make = Callable[[int, int, Post], ResidentSubtask]


class SlotLostError(HoldfastError):
    """A slot, or the driver, cannot be reached any more."""


class Slot:
    """One slot of an attempt; `serve` runs it until the attempt is over."""

    def __init__(
        self,
        job: JobCode,
        attempt: int,
        number: int,
        make: Make,
        heartbeat: float = 10.0,
        tidy: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare a slot; its subtasks are created later.

        Args:
            job: the job to run.
            attempt: the number of the attempt.
            number: the number of the slot; the driver assigns a new one that suits its host.
            make: creates its subtasks.
            heartbeat: a driver that sends nothing for this many seconds is lost.
            tidy: called from time to time while the subtasks work.
        """
        self._tidy = tidy
        self._job = job
        self._attempt = attempt
        self._number = number
        self._make = make
        self._heartbeat = heartbeat
        self._subtasks: dict[Place, ResidentSubtask] = {}
        self._threads: list[threading.Thread] = []
        #: the threads whose subtasks have not started to leave
        self._at_work: set[int] = set()
        #: whether the job is over, not only the attempt
        self._ended = False

    def serve(self, driver: Address, host: str) -> None:
        """Work for the driver at an address until the attempt is over.

        ``host``: the address on which this slot listens for other slots.

        Raises:
            SlotLostError: when the driver is gone, or other slots cannot be reached.
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

    def _introduce(self, driver: Address, own: Address) -> tuple[Carrier, messages.Welcome]:
        """Connect to the driver, take the number that it assigns, and return the carrier."""
        wire = messages.Wire(connect(driver, PATIENCE, self._job.certificate))
        try:
            wire.send(messages.Say.HELLO, data=messages.encode(self._hello(own)))
            frame = wire.receive()
            if frame.kind != messages.Say.WELCOME:
                raise InternalError(f"the driver sent a message of kind {frame.kind} for a welcome")
            welcome = messages.decode_welcome(frame.data)
            self._number = welcome.slot
            carrier = Carrier(self._job, self._hello(own), wire)
            self._make_subtasks(carrier)
        except BaseException:
            wire.close()
            raise
        return carrier, welcome

    def _lost(self, error: BaseException) -> SlotLostError:
        return SlotLostError(
            f"slot {self._number} has lost its connection to the driver: {error!r}"
        )

    def _hello(self, own: Address) -> messages.Hello:
        return messages.Hello(
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

    def _work(self, carrier: Carrier, welcome: messages.Welcome, key: str) -> None:
        """Connect to the other slots, and follow the driver until the attempt is over."""
        missing = carrier.call(welcome, key)
        if missing:
            message = f"slots {missing} did not connect to slot {self._number}"
            raise SlotLostError(f"{message} within {PATIENCE:g} s")
        carrier.driver.send(messages.Say.READY)
        threading.Thread(
            target=self._live, args=(carrier,), name="holdfast-alive", daemon=True
        ).start()
        carrier.watch(self._heartbeat)
        while not self._obey(carrier, carrier.driver.receive()):
            pass

    def _obey(self, carrier: Carrier, frame: messages.Frame) -> bool:
        """Carry out a message of the driver; return whether the attempt is over."""
        if frame.kind == messages.Say.ROUND:
            self._begin_round(carrier, messages.decode_round(frame.data).unpacked())
        elif frame.kind == messages.Say.CREDIT:
            carrier.grant_results(messages.decode_credited(frame.data).bytes)
        elif frame.kind == messages.Say.QUERY:
            query = messages.decode_query(frame.data)
            subtask = self._subtasks[query.level, query.subtask]
            subtask.call(
                lambda: carrier.driver.send(
                    messages.Say.ANSWER, data=messages.encode(answer(query, subtask.look_up))
                )
            )
        elif frame.kind == messages.Say.STOP:
            self._ended = messages.decode_stop(frame.data).ended
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
        """Send heartbeats to the driver and the other slots, and progress in a long round."""
        with suppress(*GONE):
            while not carrier.leaving:
                carrier.say_alive()
                found = (subtask.progress() for subtask in self._subtasks.values())
                progress = [each for each in found if each is not None]
                if progress:
                    carrier.driver.send(messages.Say.PROGRESS, data=messages.encode(progress))
                self._tidy()
                time.sleep(self._heartbeat / 5)

    # Subtasks

    def _drive(self, carrier: Carrier, place: Place) -> threading.Thread:
        # settings that modules made when they were loaded, such as for decimals, apply here too
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
        """End all subtasks, whatever they are doing."""
        carrier.leave()
        for subtask in self._subtasks.values():
            subtask.bell.ring()
        if not self._join(_MOMENT):
            # a slow function is interrupted as soon as it executes Python code again
            for thread in list(self._at_work):
                _raise_in(thread, Leaving)
            self._join(_LAST_WORDS)
        carrier.close()
        if any(thread.is_alive() for thread in self._threads):
            # a user's function does not return: nothing of this attempt may continue
            _logger.warning("a subtask of slot %d did not end; its process exits", self._number)
            spill()
            os._exit(1)
        if self._ended:
            # NB: after all have left, because some may have left before the end was known
            for subtask in self._subtasks.values():
                subtask.forget()

    def _join(self, seconds: float) -> bool:
        """Wait for all subtasks; return whether they have ended."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in another thread, at its next Python instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def failure_of(place: Place, error: BaseException) -> Failure:
    """Return the failure to report for a subtask that raised this exception."""
    if isinstance(error, OperatorFailed):
        return error.failure
    if isinstance(error, HoldfastError):
        return describe_engine_error(error)
    # an exception that ends a process, such as that of sys.exit(), is not an internal error
    kind = InternalError if isinstance(error, Exception) else JobExecutionError
    unexpected = kind(f"subtask {place[1]} of level {place[0]} failed: {error!r}")
    unexpected.add_note("".join(traceback.format_exception(error)))
    return describe_engine_error(unexpected)
