"""The driver's view of the slots of an attempt: their connections, messages and heartbeats.

All messages of all slots go into one queue, which the job's thread empties whenever it waits. So
there is one place where an attempt fails, and one thread that finds out.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections.abc import Callable, Sequence, Sized
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from holdfast.common import CompletableFuture
from holdfast.common.options.engine import HEARTBEAT
from holdfast.driver.epochs.logs import hand_over
from holdfast.driver.outcome import AbandonedError, EpochOutcome, LostSlotError
from holdfast.driver.slots.numbers import assign_numbers
from holdfast.driver.slots.rounds import Rounds
from holdfast.errors import JobExecutionError
from holdfast.history.logs import LogBook
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.peers import GONE, Line, Listener
from holdfast.runtime.network.sockets import check_room
from holdfast.runtime.resident import messages
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import EpochTask, Progress, StoredState
from holdfast.state.errors import StateStorageError

#: interval of the checks whether all slots are alive, in seconds
_LOOK: Final = 0.1
#: how long slots may take to exit after they were told to stop, in seconds
_FAREWELL: Final = 8.0
#: the same, if one of them does not respond and cannot exit
_SHORT_FAREWELL: Final = 1.0
#: how long a round may take after the job was cancelled, in seconds
_ROUND_PATIENCE: Final = 2.0
#: how long to wait for the error of a slot that another slot reported as lost, in seconds
_LAST_WORDS: Final = 1.0

Check = Callable[[], None]
#: called with the results that have arrived
Deliver = Callable[[list[Block]], None]
#: called with what subtasks have done so far in a round that takes long
NoteProgress = Callable[[Sequence[Progress]], None]


def _ignore(progress: Sequence[Progress]) -> None:
    pass


class _Slot:
    """One slot."""

    def __init__(self, hello: messages.Hello, wire: messages.Wire) -> None:
        self.hello = hello
        #: the number of its task, until all slots have connected
        self.number = hello.slot
        self.wire = wire
        self.heard = time.monotonic()

    def __str__(self) -> str:
        hello = self.hello
        return f"slot {self.number} (process {hello.process} on host '{hello.machine}')"


class Slots:
    """The slots of one attempt.

    Attributes:
        address: where slots connect to the driver.
        hosts: the host of each slot, by number; until all have connected, those of the attempt
            before.
    """

    def __init__(
        self,
        job: str,
        attempt: int,
        subtasks: int,
        heartbeat: float,
        listen: Callable[[Callable[[Line], None]], Listener],
        hosts: Sequence[str] = (),
        logs: LogBook | None = None,
        note_progress: NoteProgress = _ignore,
    ) -> None:
        """Listen for connections of slots.

        Args:
            job: the name of the plan that slots must have.
            attempt: its number.
            subtasks: how many there are in all slots.
            heartbeat: a slot that sends nothing for this many seconds is lost.
            listen: starts a listener for slots.
            hosts: the host that each slot had in the attempt before, by number.
            logs: keeps what functions log.
            note_progress: called in the thread that calls `round`.
        """
        self.hosts = tuple(hosts)
        self._attempt = attempt
        self._logs = logs or LogBook()
        self._note_progress = note_progress
        self._rounds = Rounds(job, attempt, subtasks)
        self._heartbeat = heartbeat
        self._slots: dict[int, _Slot] = {}
        self._messages: SimpleQueue[tuple[int, messages.Frame | BaseException]] = SimpleQueue()
        self._queries: dict[int, CompletableFuture[Any]] = {}
        self._query_numbers = itertools.count(1)
        self._over = threading.Event()
        self._woken = False
        #: a report that another slot is lost, and when it counts unless that slot sends an error
        self._suspicion: tuple[float, int, messages.Frame] | None = None
        self._gathered = False
        #: time of the next check whether all slots are alive
        self._look_at = 0.0
        #: when to abandon a round that has not ended
        self._abandon_by: float | None = None
        self._silent = False
        #: when the last round that carried a record was seen
        self._carried = time.monotonic()
        self._listener = listen(self._serve)
        self.address: Address = self._listener.address

    # Slots connect

    def gather(self, number: int, patience: float, check: Check) -> None:
        """Wait until this many slots have connected to the driver and to each other.

        Raises:
            JobExecutionError: when they do not connect in time, one is lost, or the driver may not
                have that many connections.
        """
        check_room(number, f"the driver of {number} slots")
        deadline = time.monotonic() + patience
        connected, ready = self._slots, self._rounds.ready

        def wait(slots: Sized, what: str) -> None:
            while len(slots) < number:
                if time.monotonic() > deadline:
                    raise JobExecutionError(
                        f"only {len(slots)} of {number} slots have connected {what} within "
                        f"{patience:g} s; check that hosts reach each other over the network"
                    )
                self._pump(_LOOK, check)

        wait(connected, "to the driver")
        self._number_slots()
        self._welcome_all()
        threading.Thread(target=self._live, name="holdfast-alive", daemon=True).start()
        wait(ready, "to all others")
        for slot in self._slots.values():  # a slot sends nothing before it is ready
            slot.heard = time.monotonic()
        self._gathered = True

    def _number_slots(self) -> None:
        """Give each slot a number that its host had before, if possible."""
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
            # NB: the thread that receives the messages of a slot notices when the slot is gone
            with suppress(*GONE):
                slot.wire.send(
                    messages.Say.WELCOME,
                    data=messages.encode(messages.Welcome(slot.number, places)),
                )

    def _serve(self, line: Line) -> None:
        """Receive the messages of a slot, in a thread of its own."""
        wire = messages.Wire(line)
        frame = wire.receive()
        hello = messages.decode_hello(frame.data)
        admitted = self._rounds.admits(hello)
        if frame.kind != messages.Say.HELLO or not admitted or hello.slot in self._slots:
            return  # a slot of another attempt, or one that was started twice
        slot = self._slots[hello.slot] = _Slot(hello, wire)
        try:
            while True:
                message = wire.receive()
                slot.heard = time.monotonic()
                if message.kind != messages.Say.ALIVE:
                    self._messages.put((slot.number, message))
        except GONE:
            why = "find the cause, such as a lack of memory"
            self._messages.put((slot.number, LostSlotError(f"{slot} has ended; {why}")))
        except Exception as error:
            self._messages.put((slot.number, JobExecutionError(f"{slot}: {error}")))

    def _live(self) -> None:
        """Send heartbeats to the slots."""
        while not self._over.wait(self._heartbeat / 5):
            self._tell_all(messages.Say.ALIVE)

    # Rounds

    def round(self, tasks: Sequence[EpochTask], deliver: Deliver, check: Check) -> EpochOutcome:
        """Run an epoch; return when every subtask has acknowledged it, or raise when one failed.

        Raises:
            AbandonedError: when the epoch was abandoned.
            HoldfastError: when a subtask failed or a slot was lost.
        """
        self._tell_all(messages.Say.ROUND, self._rounds.begin(tasks))
        while not self._rounds.ended:
            self._pump(_LOOK, check)
            self._deliver(deliver)
            progress = self._rounds.take_progress()
            if progress and not self._rounds.ended:
                self._note_progress(progress)
            if self._abandon_by is not None and time.monotonic() > self._abandon_by:
                raise AbandonedError("the job is cancelled, and its functions do not return")
        return self._rounds.take_outcome()

    def pause(self, interval: float) -> float:
        """Return how long to wait for the next round, in seconds; see `Rounds.pause`."""
        now = time.monotonic()
        if self._rounds.carried:
            self._carried = now
        return self._rounds.pause(interval, now - self._carried)

    def wait(self, seconds: float, deliver: Deliver, check: Check) -> None:
        """Wait until `wake` is called, a state is stored, all input has ended, or time is up.

        Results are delivered in the meantime.

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
        """Abandon this round, or a later one, if it does not end soon; from any thread."""
        self._abandon_by = time.monotonic() + _ROUND_PATIENCE

    def wake(self) -> None:
        """End the wait of the job's thread; from any thread."""
        self._woken = True
        self._messages.put(
            (-1, messages.Frame(messages.Say.ALIVE, memoryview(b""), memoryview(b"")))
        )

    def stored(self, seconds: float, deliver: Deliver, check: Check) -> list[StoredState]:
        """Return the states that were stored; wait up to ``seconds`` if there are none."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self._pump(min(max(left, 0.0), _LOOK), check)
            self._deliver(deliver)
            if self._rounds.has_stored or left <= 0:
                return self._rounds.take_stored()

    def fail(self, error: BaseException) -> None:
        """Report that the attempt cannot continue; from any thread."""
        self._messages.put((-1, error))

    def query(self, level: int, subtask: int, operator: str, state: str, key: Any) -> Any:
        """Query a running subtask; from any thread. The answer is a future.

        Raises:
            StateStorageError: when the subtask cannot be reached now.
        """
        answer: CompletableFuture[Any] = CompletableFuture()
        number = next(self._query_numbers)
        self._queries[number] = answer
        query = messages.Query(number, level, subtask, operator, state, pickle.dumps(key, 5))
        try:
            self._slots[subtask].wire.send(messages.Say.QUERY, data=messages.encode(query))
        except (*GONE, KeyError) as error:
            raise StateStorageError("the job is not running now; try again") from error
        return answer

    # Messages of slots

    def _pump(self, seconds: float, check: Check) -> None:
        """Handle the messages that have arrived; wait up to ``seconds`` if there are none.

        Raises:
            HoldfastError: when the attempt has failed.
        """
        with suppress(Empty):
            self._take(*self._messages.get(seconds > 0, seconds or None))
            while True:
                self._take(*self._messages.get_nowait())
        self._weigh_suspicion()
        if self._rounds.failure is not None:
            hand_over(self._rounds.take_log(), self._attempt, self._logs)
            raise self._rounds.failure
        check()
        if self._gathered:
            self._check_alive()

    def _check_alive(self) -> None:
        """Check whether all slots are alive; not for each message, since each check visits all."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + min(_LOOK, self._heartbeat / 5)
        for slot in self._slots.values():
            if now - slot.heard > self._heartbeat:
                self._silent = True
                silent = f"{slot} sent nothing for more than {self._heartbeat:g} s"
                raise LostSlotError(f"{silent} ('{HEARTBEAT}')")

    def _take(self, number: int, message: messages.Frame | BaseException) -> None:
        if isinstance(message, messages.Frame) and message.kind == messages.Say.ANSWER:
            self._answer(message)
        elif isinstance(message, messages.Frame) and message.kind == messages.Say.LOST:
            # NB: the slot that was reported as lost may be about to send the reason
            self._suspicion = self._suspicion or (time.monotonic() + _LAST_WORDS, number, message)
        else:
            self._rounds.take(number, message)

    def _weigh_suspicion(self) -> None:
        if self._suspicion is not None and time.monotonic() > self._suspicion[0]:
            self._rounds.take(*self._suspicion[1:])

    def _deliver(self, deliver: Deliver) -> None:
        """Deliver the results that have arrived, and give slots credit to send as much again."""
        hand_over(self._rounds.take_log(), self._attempt, self._logs)
        blocks, taken = self._rounds.take_results()
        if blocks:
            deliver(blocks)
        for number, size in taken.items():
            with suppress(*GONE):
                self._slots[number].wire.send(
                    messages.Say.CREDIT, data=messages.encode(messages.Credited(size))
                )

    def _answer(self, message: messages.Frame) -> None:
        answer = messages.decode_answer(message.data)
        asked = self._queries.pop(answer.number, None)
        if asked is None:
            return
        if answer.failure:
            asked.set_exception(pickle.loads(answer.failure))
        else:
            asked.set_result(pickle.loads(answer.value))

    def _tell_all(self, kind: messages.Say, message: Any = None) -> None:
        data = b"" if message is None else messages.encode(message)
        for slot in list(self._slots.values()):
            # NB: the thread that receives the messages of a slot notices when the slot is gone
            with suppress(*GONE):
                slot.wire.send(kind, data=data)

    # The end

    def stop(self, ended: bool, gone: Callable[[float], bool]) -> bool:
        """Send all slots the end of the attempt; return whether they have exited.

        ``gone``: waits this many seconds for the end of the tasks that run the slots.
        """
        self._over.set()
        self._listener.close()
        self._tell_all(messages.Say.STOP, messages.Stop(ended))
        left = gone(_SHORT_FAREWELL if self._silent else _FAREWELL)
        for slot in self._slots.values():
            slot.wire.close()
        while self._queries:
            problem = StateStorageError("the attempt of the job has ended; try again")
            self._queries.popitem()[1].set_exception(problem)
        return left
