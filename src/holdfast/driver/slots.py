"""The slots of an attempt, as the driver sees them: who they are, what they say, whether they live.

All messages of all slots come into one queue, which the job's thread empties whenever it waits for
something. So there is one place where an attempt fails, and one thread that knows it.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from holdfast.common import CompletableFuture
from holdfast.common.engine_options import HEARTBEAT
from holdfast.driver.logs import hand_over
from holdfast.driver.outcome import AbandonedError, EpochOutcome, LostSlotError
from holdfast.driver.rounds import Rounds
from holdfast.driver.slot_numbers import assign_numbers
from holdfast.errors import JobExecutionError
from holdfast.runtime.addresses import Address
from holdfast.runtime.blocks import Block
from holdfast.runtime.peers import GONE, Line, Listener
from holdfast.runtime.protocol import EpochTask, StoredState
from holdfast.runtime.resident.messages import (
    Credited,
    Frame,
    Hello,
    Query,
    Say,
    Stop,
    Welcome,
    Wire,
    decode_answer,
    decode_hello,
    encode,
)
from holdfast.runtime.sockets import check_room
from holdfast.state.errors import StateStorageError

__all__ = ["Slots"]

#: between two looks at whether all slots live, in seconds
_LOOK: Final = 0.1
#: how long slots may take to leave when they are told to, in seconds
_FAREWELL: Final = 8.0
#: the same, if one of them stands still and cannot leave
_SHORT_FAREWELL: Final = 1.0
#: how long a round may take in a job that is cancelled, in seconds
_ROUND_PATIENCE: Final = 2.0
#: how long a slot that others have lost may take to say why, in seconds
_LAST_WORDS: Final = 1.0

Check = Callable[[], None]
#: takes the results that have come
Deliver = Callable[[list[Block]], None]


class _Slot:
    """One slot."""

    def __init__(self, hello: Hello, wire: Wire) -> None:
        self.hello = hello
        #: that of its task, until all slots have come
        self.number = hello.slot
        self.wire = wire
        self.heard = time.monotonic()

    def __str__(self) -> str:
        hello = self.hello
        return f"slot {self.number} (process {hello.process} on host '{hello.machine}')"


class Slots:
    """The slots of one attempt.

    Attributes:
        address: where slots call the driver.
        hosts: the host of each slot, by number; those of the attempt before until all have come.
    """

    def __init__(
        self,
        job: str,
        attempt: int,
        subtasks: int,
        heartbeat: float,
        listen: Callable[[Callable[[Line], None]], Listener],
        hosts: Sequence[str] = (),
    ) -> None:
        """Wait for calls.

        Args:
            job: the name of the plan that slots must know.
            attempt: its number.
            subtasks: how many there are in all slots.
            heartbeat: a slot that is silent for so many seconds is lost.
            listen: lets slots connect.
            hosts: the host that had each slot in the attempt before, by number.
        """
        self.hosts = tuple(hosts)
        self._attempt = attempt
        self._rounds = Rounds(job, attempt, subtasks)
        self._heartbeat = heartbeat
        self._slots: dict[int, _Slot] = {}
        self._messages: SimpleQueue[tuple[int, Frame | BaseException]] = SimpleQueue()
        self._queries: dict[int, CompletableFuture[Any]] = {}
        self._query_numbers = itertools.count(1)
        self._over = threading.Event()
        self._woken = False
        #: what a slot has said of another one, and when it counts if that one says nothing itself
        self._suspicion: tuple[float, int, Frame] | None = None
        self._gathered = False
        #: when to look next whether all slots live
        self._look_at = 0.0
        #: when a round is given up that has not ended
        self._abandon_by: float | None = None
        self._silent = False
        #: when a round was last seen that carried a record
        self._carried = time.monotonic()
        self._listener = listen(self._serve)
        self.address: Address = self._listener.address

    # Slots come

    def gather(self, number: int, patience: float, check: Check) -> None:
        """Wait until so many slots have called, and know each other.

        Raises:
            JobExecutionError: when they do not come in time, one is lost, or they are more than
                the driver may have connections to.
        """
        check_room(number, f"the driver of {number} slots")
        deadline = time.monotonic() + patience
        self._await(lambda: len(self._slots) == number, deadline, check, "called")
        self._number_slots()
        self._welcome_all()
        threading.Thread(target=self._live, name="holdfast-alive", daemon=True).start()
        self._await(lambda: len(self._rounds.ready) == number, deadline, check, "found each other")
        for slot in self._slots.values():  # before it is ready a slot has nothing to say
            slot.heard = time.monotonic()
        self._gathered = True

    def _number_slots(self) -> None:
        """Give each slot a number that its host had before, if that is possible."""
        came = self._slots
        machines = {task: slot.hello.machine for task, slot in came.items()}
        for task, number in assign_numbers(machines, self.hosts).items():
            came[task].number = number
        self._slots = {slot.number: slot for slot in came.values()}
        self.hosts = tuple(slot.hello.machine for _, slot in sorted(self._slots.items()))

    def _welcome_all(self) -> None:
        slots = [slot for _, slot in sorted(self._slots.items())]
        places = tuple((slot.hello.host, slot.hello.port) for slot in slots)
        for slot in slots:
            # NB: that a slot has gone is noticed by the thread that takes its messages
            with suppress(*GONE):
                slot.wire.send(Say.WELCOME, data=encode(Welcome(slot.number, places)))

    def _await(self, reached: Callable[[], bool], deadline: float, check: Check, what: str) -> None:
        while not reached():
            if time.monotonic() > deadline:
                count = len(self._slots)
                raise JobExecutionError(
                    f"the attempt has begun, but only {count} slots have {what}"
                )
            self._pump(_LOOK, check)

    def _serve(self, line: Line) -> None:
        """Take the messages of a slot, in a thread of its own."""
        wire = Wire(line)
        frame = wire.receive()
        hello = decode_hello(frame.data)
        admitted = self._rounds.admits(hello)
        if frame.kind != Say.HELLO or not admitted or hello.slot in self._slots:
            return  # of another attempt, or started twice
        slot = self._slots[hello.slot] = _Slot(hello, wire)
        try:
            while True:
                message = wire.receive()
                slot.heard = time.monotonic()
                if message.kind != Say.ALIVE:
                    self._messages.put((slot.number, message))
        except GONE:
            why = "look for what ended it, such as a lack of memory"
            self._messages.put((slot.number, LostSlotError(f"{slot} has ended; {why}")))
        except Exception as error:
            self._messages.put((slot.number, JobExecutionError(f"{slot}: {error}")))

    def _live(self) -> None:
        """Tell the slots, now and then, that the driver lives."""
        while not self._over.wait(self._heartbeat / 5):
            self._tell_all(Say.ALIVE)

    # What runs

    def round(self, tasks: Sequence[EpochTask], deliver: Deliver, check: Check) -> EpochOutcome:
        """Run an epoch: returns when every subtask has acknowledged it, or one has failed.

        Raises:
            AbandonedError: when it was given up.
            HoldfastError: when a slot was lost.
        """
        self._tell_all(Say.ROUND, self._rounds.begin(tasks))
        while not self._rounds.ended:
            self._pump(_LOOK, check)
            self._deliver(deliver)
            if self._abandon_by is not None and time.monotonic() > self._abandon_by:
                raise AbandonedError("the job is cancelled, and its functions do not come back")
        return self._rounds.take_outcome()

    def pause(self, interval: float) -> float:
        """Return how long to wait for the next round, in seconds; see `Rounds.pause`."""
        now = time.monotonic()
        if self._rounds.carried:
            self._carried = now
        return self._rounds.pause(interval, now - self._carried)

    def wait(self, seconds: float, deliver: Deliver, check: Check) -> None:
        """Let time pass until somebody calls `wake`, a state is stored, or all input has ended.

        Results are handed out meanwhile.

        Raises:
            HoldfastError: when the attempt has failed.
        """
        deadline = time.monotonic() + seconds
        while not (self._woken or self._rounds.has_stored or self._rounds.take_news()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._pump(min(left, _LOOK), check)
            self._deliver(deliver)
        self._woken = False

    def abandon(self) -> None:
        """Give up a round that does not end soon, now or later; from any thread."""
        self._abandon_by = time.monotonic() + _ROUND_PATIENCE

    def wake(self) -> None:
        """End the wait of the job's thread; from any thread."""
        self._woken = True
        self._messages.put((-1, Frame(Say.ALIVE, memoryview(b""), memoryview(b""))))

    def stored(self, seconds: float, deliver: Deliver, check: Check) -> list[StoredState]:
        """Return the states that were stored; wait so long if there are none."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self._pump(min(max(left, 0.0), _LOOK), check)
            self._deliver(deliver)
            if self._rounds.has_stored or left <= 0:
                return self._rounds.take_stored()

    def fail(self, error: BaseException) -> None:
        """Say that the attempt cannot go on; from any thread."""
        self._messages.put((-1, error))

    def query(self, level: int, subtask: int, operator: str, state: str, key: Any) -> Any:
        """Ask a running subtask; from any thread.

        Raises:
            StateStorageError: when it cannot be asked now.
        """
        answer: CompletableFuture[Any] = CompletableFuture()
        number = next(self._query_numbers)
        self._queries[number] = answer
        query = Query(number, level, subtask, operator, state, pickle.dumps(key, 5))
        try:
            self._slots[subtask].wire.send(Say.QUERY, data=encode(query))
        except (*GONE, KeyError) as error:
            raise StateStorageError("the job does not run now; ask again") from error
        return answer

    # What slots say

    def _pump(self, seconds: float, check: Check) -> None:
        """Take what has come; wait so long for it, if nothing has.

        Raises:
            HoldfastError: when the attempt has failed.
        """
        with suppress(Empty):
            self._take(*self._messages.get(seconds > 0, seconds or None))
            while True:
                self._take(*self._messages.get_nowait())
        self._weigh_suspicion()
        if self._rounds.failure is not None:
            hand_over(self._rounds.take_log(), self._attempt)
            raise self._rounds.failure
        check()
        if self._gathered:
            self._check_alive()

    def _check_alive(self) -> None:
        """Look whether all slots live; not with each message, for there are as many as slots."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + min(_LOOK, self._heartbeat / 5)
        for slot in self._slots.values():
            if now - slot.heard > self._heartbeat:
                self._silent = True
                silent = f"{slot} was silent for more than {self._heartbeat:g} s"
                raise LostSlotError(f"{silent} ('{HEARTBEAT}')")

    def _take(self, number: int, message: Frame | BaseException) -> None:
        if isinstance(message, Frame) and message.kind == Say.ANSWER:
            self._answer(message)
        elif isinstance(message, Frame) and message.kind == Say.LOST:
            # NB: the one that was lost may be just about to say why
            self._suspicion = self._suspicion or (time.monotonic() + _LAST_WORDS, number, message)
        else:
            self._rounds.take(number, message)

    def _weigh_suspicion(self) -> None:
        if self._suspicion is not None and time.monotonic() > self._suspicion[0]:
            self._rounds.take(*self._suspicion[1:])

    def _deliver(self, deliver: Deliver) -> None:
        """Hand out the results that have come, and let as much come again."""
        hand_over(self._rounds.take_log(), self._attempt)
        results = self._rounds.take_results()
        if results.blocks:
            deliver(results.blocks)
        for number, size in results.taken.items():
            with suppress(*GONE):
                self._slots[number].wire.send(Say.CREDIT, data=encode(Credited(size)))

    def _answer(self, message: Frame) -> None:
        answer = decode_answer(message.data)
        asked = self._queries.pop(answer.number, None)
        if asked is None:
            return
        if answer.failure:
            asked.set_exception(pickle.loads(answer.failure))
        else:
            asked.set_result(pickle.loads(answer.value))

    def _tell_all(self, kind: Say, message: Any = None) -> None:
        data = b"" if message is None else encode(message)
        for slot in list(self._slots.values()):
            # NB: that a slot has gone is noticed by the thread that takes its messages
            with suppress(*GONE):
                slot.wire.send(kind, data=data)

    # The end

    def stop(self, ended: bool, gone: Callable[[float], bool]) -> bool:
        """Tell all slots that the attempt is over; returns whether they have left.

        ``gone``: waits so many seconds for the end of what runs the slots.
        """
        self._over.set()
        self._listener.close()
        self._tell_all(Say.STOP, Stop(ended))
        left = gone(_SHORT_FAREWELL if self._silent else _FAREWELL)
        for slot in self._slots.values():
            slot.wire.close()
        while self._queries:
            problem = StateStorageError("the attempt of the job has ended; ask again")
            self._queries.popitem()[1].set_exception(problem)
        return left
