"""A cluster whose slots stay for as long as an attempt lasts, in one thread, as chance has it.

Slots, carriers, channels, credits, subtasks and writers are real. Here is what the threads and the
network would do: which message comes next, which subtask does its next piece of work, and which
state is written. Whoever is left when an attempt is over goes on for a while: it is a zombie.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.driver.engine import PlannedJob
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.slots.rounds import Rounds
from holdfast.runtime.resident.carrier import Carrier, Place
from holdfast.runtime.resident.channels import Leaving
from holdfast.runtime.resident.messages import Credited, Frame, Hello, Say, Stop, encode
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.slot import Slot, failure_of
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.wire.blocks import Kind, decode_header, decode_records
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.job_code import JobCode
from holdfast.state.storage.directory import StateStorage
from tests.simulation.cluster import ClusterGaveUp
from tests.simulation.pipes import Gone, Pipe, SimulatedWire, WaitingWriter, WaitsBefore
from tests.simulation.world import Violation, World

#: an epoch that takes more than that does not come to its end
_MANY_MOMENTS = 30_000
#: how often something may go wrong, or be late, from one moment to the next
_MISFORTUNES = 0.015
_DELAYS = 0.04
#: how often something is noticed from afar
_NOTICES = 0.03
#: moments for which something may stand still
_LONG = 150


def _nothing() -> None:
    """What happens in a moment in which nothing does."""


class SimulatedSlot(Slot):
    """A slot whose threads are the fleet's.

    Attributes:
        hello: as whom it calls.
        late_writes: states that are still being written when it has left.
        stalled_until: nothing in it moves before that moment of its fleet.
    """

    def __init__(
        self, world: World, hello: Hello, code: JobCode, storage: StateStorage, driver: Pipe
    ) -> None:
        super().__init__(code, hello.attempt, hello.slot, self._make_subtask)
        self.hello = hello
        self.late_writes: list[Callable[[], None]] = []
        self.name = f"slot {hello.slot} of attempt {hello.attempt}"
        self.alive = True
        self.stalled_until = 0
        self._world, self._storage = world, storage
        self._driven: dict[Place, ResidentSubtask] = {}
        self._awake: set[Place] = set()
        self.carrier = Carrier(code, hello, SimulatedWire(driver))
        self._make_subtasks(self.carrier)
        self._room = {place: self._credits_of(place) for place in self._subtasks}

    def _make_subtask(self, level: int, number: int, post: Post) -> ResidentSubtask:
        return ResidentSubtask(
            self._job,
            level,
            number,
            self._attempt,
            self._storage,
            self._world.clock,
            post,
            WaitingWriter,
        )

    def _credits_of(self, place: Place) -> list[WaitsBefore]:
        credits: list[Any] = [
            credit for (producer, _), credit in self.carrier._credits.items() if producer == place
        ]
        is_last = place[0] == len(self._job.plan.levels) - 1
        results: Any = self.carrier._results
        return [*credits, results] if is_last else credits

    def _drive(self, carrier: Carrier, place: Place) -> threading.Thread:
        self._driven[place] = self._subtasks[place]
        return threading.current_thread()

    # What it can do, and does

    def ready(self) -> list[Place]:
        """The subtasks that have something to do, and room for what comes of it."""
        for place, subtask in self._driven.items():
            if subtask.bell.wait(0):
                self._awake.add(place)
        return [
            place
            for place in self._driven
            if place in self._awake and all(credit.has_room for credit in self._room[place])
        ]

    @property
    def is_held_up(self) -> bool:
        """Whether a subtask has something to do, and no room."""
        return len(self.ready()) < len(self._awake)

    def writing(self) -> list[WaitingWriter]:
        """The writers that have something to write."""
        return [writer for writer in self._writers() if writer.is_waiting]

    def _writers(self) -> list[WaitingWriter]:
        writers: list[Any] = [subtask._writer for subtask in self._driven.values()]
        return writers

    def step(self, place: Place) -> None:
        """Let a subtask do a piece of work."""
        subtask = self._driven[place]
        with self._world.worker(self.name):
            try:
                if not subtask.step():
                    self._awake.discard(place)
            except Leaving:
                self._end(place)
            except Exception as error:
                with suppress(Leaving):
                    subtask.report(failure_of(place, error))
                self._end(place)
        held = subtask.inputs._held
        self._world.counts["an aligned mark waited for others"] += bool(held)
        self._world.counts["records waited behind an aligned mark"] += any(held.values())

    def _end(self, place: Place) -> None:
        self._driven.pop(place).leave()
        self._awake.discard(place)

    def hear_driver(self, frame: Frame | Gone) -> None:
        """The driver said something, or has gone."""
        if not self.alive:
            return
        if isinstance(frame, Gone) or self._obey(self.carrier, frame):
            self.leave()

    def hear_peer(self, number: int, frame: Frame | Gone) -> None:
        """Another slot said something, or has gone."""
        if not self.alive:
            return
        if isinstance(frame, Gone):
            self.carrier.lose(number)
        else:
            self.carrier.take(frame)

    def leave(self) -> None:
        """End; what is being written goes on."""
        if not self.alive:
            return
        going_on = [writer.keep_writing() for writer in self._writers()]
        self.late_writes += [write for write in going_on if write is not None]
        self.carrier.leave()
        for place in list(self._driven):
            self._end(place)
        self.carrier.close()
        self.alive = False


class Fleet:
    """The slots of an attempt, what is on its way between them, and what the driver knows.

    Attributes:
        rounds: what the driver has heard.
        over: whether the attempt is; then nobody listens.
    """

    def __init__(self, world: World, job: PlannedJob, code: JobCode, attempt: int) -> None:
        plan = job.plan
        self.rounds = Rounds(job.name, attempt, sum(level.parallelism for level in plan.levels))
        self.over = False
        self._world, self._random, self._job = world, world.random, job
        self._moment = 0
        #: how long a piece of work takes, in seconds
        self._tick = self._random.choice((0.0001, 0.002, 0.03))
        choice = self._random.choice
        self._kinds = (self._deliveries, self._steps, self._writes, self._pauses)
        #: how often messages come, subtasks work, states are written, or just time passes
        self._weights = [choice((1, 3, 10)), choice((1, 3, 10)), choice((0.005, 0.1, 2)), 0.5]
        #: what somebody will notice, sooner or later
        self._notices: list[Callable[[], None]] = []
        #: results of each subtask since its last mark, and all before their marks
        self._since_mark: dict[Place, list[Any]] = {}
        self._until_mark: Counter[Any] = Counter()
        self._slow: dict[WaitingWriter, int] = {}
        numbers = range(plan.widest_level.parallelism)
        self._to_driver = [Pipe(f"slot {n}", "the driver", partial(self._hear, n)) for n in numbers]
        self.slots = [
            SimulatedSlot(world, Hello(job.name, attempt, n), code, job.storage, pipe)
            for n, pipe in enumerate(self._to_driver)
        ]
        self._from_driver = [
            Pipe("the driver", f"slot {n}", self.slots[n].hear_driver) for n in numbers
        ]
        self._between = {
            (a, b): Pipe(f"slot {a}", f"slot {b}", partial(self.slots[b].hear_peer, a))
            for a in numbers
            for b in numbers
            if a != b
        }
        for (a, b), pipe in self._between.items():
            self.slots[a].carrier.know(b, SimulatedWire(pipe))

    # What the driver does

    def _hear(self, number: int, frame: Frame | Gone) -> None:
        """The driver hears of a slot."""
        if self.over:
            return
        if isinstance(frame, Gone):
            self.rounds.take(number, ClusterGaveUp(f"slot {number} has ended"))
            return
        if frame.kind == Say.BLOCK:
            self._note_results(frame)
        self.rounds.take(number, frame)

    def _note_results(self, frame: Frame) -> None:
        header = decode_header(frame.head)
        place = header.producer_level, header.producer
        if header.kind == Kind.RESULT:
            self._since_mark.setdefault(place, []).extend(decode_records(frame.data))
        elif header.kind == Kind.ACKNOWLEDGEMENT:
            self._until_mark.update(self._since_mark.pop(place, ()))

    def results_at_mark(self) -> Counter[Any]:
        """What was delivered before the mark of the round that has just ended."""
        return Counter(self._until_mark)

    def round(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run an epoch."""
        task = tasks[0]
        told = encode(self.rounds.begin(tasks))
        for pipe in self._from_driver:
            self._tell(pipe, Say.ROUND, told)
        for _ in range(_MANY_MOMENTS):
            self._pump()
            if self.rounds.ended:
                return self.rounds.take_outcome()
            self._perhaps_the_end(task)
            if not self.act():
                raise Violation(f"nothing happens any more, and epoch {task.epoch} has not ended")
        raise Violation(f"epoch {task.epoch} does not come to its end")

    def go_on(self, moments: int) -> None:
        """The driver waits, and hears what comes meanwhile."""
        for _ in range(moments):
            self._pump()
            if not self.act():
                break
        self._pump()

    def _perhaps_the_end(self, task: EpochTask) -> None:
        if self._random.random() < _MISFORTUNES:
            if self._world.happens("the driver dies in an epoch"):
                self._world.kill_driver(f"in epoch {task.epoch}")
            if self._world.happens("the cluster gives up"):
                raise ClusterGaveUp(f"the cluster gave up on epoch {task.epoch}")

    def _pump(self) -> None:
        if self.rounds.failure is not None:
            raise self.rounds.failure
        blocks, taken = self.rounds.take_results()
        if blocks:
            self._job.deliver(blocks)
        for number, size in taken.items():
            self._tell(self._from_driver[number], Say.CREDIT, encode(Credited(size)))

    def _tell(self, pipe: Pipe, kind: Say, data: bytes) -> None:
        with suppress(ConnectionError):
            SimulatedWire(pipe).send(kind, data=data)

    # What happens

    def act(self) -> bool:
        """Something happens somewhere; returns whether anything could."""
        self._moment += 1
        self._perhaps_misfortune()
        if self._notices and self._random.random() < _NOTICES:
            self._notice()
            return True
        kinds = dict(zip(self._kinds, self._weights, strict=True))
        while kinds:
            (kind,) = self._random.choices(list(kinds), list(kinds.values()))
            del kinds[kind]
            if possible := kind():
                self._random.choice(possible)()
                return True
        return self._wait()

    def _is_up(self, number: int) -> bool:
        slot = self.slots[number]
        return slot.alive and slot.stalled_until <= self._moment

    def _deliveries(self) -> list[Callable[[], None]]:
        pipes = [pipe for n, pipe in enumerate(self._from_driver) if self._is_up(n)]
        pipes += [pipe for (_, b), pipe in self._between.items() if self._is_up(b)]
        return [
            pipe.deliver
            for pipe in (*self._to_driver, *pipes)
            if pipe.frames and not pipe.cut and pipe.held_until <= self._moment
        ]

    def _steps(self) -> list[Callable[[], None]]:
        return [
            partial(self._step, slot, place)
            for n, slot in enumerate(self.slots)
            if self._is_up(n)
            for place in slot.ready()
        ]

    def _step(self, slot: SimulatedSlot, place: Place) -> None:
        self._world.ticks += self._tick
        slot.step(place)

    def _writes(self) -> list[Callable[[], None]]:
        return [
            partial(self._write, slot, writer)
            for n, slot in enumerate(self.slots)
            if self._is_up(n)
            for writer in slot.writing()
            if self._slow.get(writer, 0) <= self._moment
        ]

    def _pauses(self) -> list[Callable[[], None]]:
        # NB: not if there is nothing else to do, or nobody would see that all stand still
        return [_nothing] if not self._world.calm and self._writes() else []

    def _write(self, slot: SimulatedSlot, writer: WaitingWriter) -> None:
        fails = self._world.happens("a state cannot be written")
        if fails:
            # NB: the second write of a state is the one that brings it to another machine
            self._world.refuse_write(after=self._random.randrange(2))
        with self._world.worker(f"a writer of {slot.name}"):
            writer.write_next()
        if fails:
            self._world.make_space()

    def _wait(self) -> bool:
        """Nothing can happen now: perhaps later."""
        if any(slot.alive and slot.is_held_up for slot in self.slots):
            self._world.counts["all waited for room"] += 1
        pipes = (*self._to_driver, *self._from_driver, *self._between.values())
        later = [pipe.held_until for pipe in pipes if pipe.frames]
        later += [slot.stalled_until for slot in self.slots if slot.alive]
        later += self._slow.values()
        later = [moment for moment in later if moment > self._moment]
        if later:
            self._moment = min(later)
        elif self._notices:
            self._notice()
        else:
            return False
        return True

    def _notice(self) -> None:
        self._notices.pop(self._random.randrange(len(self._notices)))()

    # What goes wrong

    def _perhaps_misfortune(self) -> None:
        if self._random.random() < _DELAYS:
            self._perhaps_delay()
        if self._random.random() >= _MISFORTUNES:
            return
        living = [n for n, slot in enumerate(self.slots) if slot.alive]
        if not living:
            return
        number = self._random.choice(living)
        if self._world.happens("a slot dies"):
            self._kill(number)
        elif self._world.happens("a slot stalls"):
            self._stall(number)
        elif self._world.happens("a slot is cut off from the driver"):
            self._cut_off(number)
        elif len(living) > 1 and self._world.happens("two slots are cut off from each other"):
            self._cut_apart(*self._random.sample(living, 2))

    def _perhaps_delay(self) -> None:
        until = self._moment + self._random.randrange(1, _LONG)
        if self._world.happens("messages are late"):
            pipes = (*self._to_driver, *self._from_driver, *self._between.values())
            self._random.choice(pipes).held_until = until
        if self._world.happens("a writer is slow"):
            slot = self._random.choice(self.slots)
            writers = slot._writers()
            if writers:
                self._slow[self._random.choice(writers)] = until * self._random.choice((1, 4))

    def _kill(self, number: int) -> None:
        slot = self.slots[number]
        self._world.tell(f"{slot.name} dies")
        slot.alive = False
        for pipe in self._pipes_from(number):
            pipe.end(lost=self._random.choice((0, 0, 1, 5)))
        for pipe in self._pipes_to(number):
            if self._random.random() < 0.5:
                pipe.close()

    def _stall(self, number: int) -> None:
        slot = self.slots[number]
        self._world.tell(f"{slot.name} stalls")
        slot.stalled_until = self._moment + self._random.randrange(1, 4 * _LONG)
        if self._random.random() < 0.3:
            self._notices.append(lambda: self._miss(number))

    def _cut_off(self, number: int) -> None:
        """Both sides notice: the driver and the slot."""
        self._world.tell(f"{self.slots[number].name} is cut off from the driver")
        self._to_driver[number].cut = self._from_driver[number].cut = True
        self._notices += (lambda: self._miss(number), self.slots[number].leave)

    def _cut_apart(self, a: int, b: int) -> None:
        self._world.tell(f"slots {a} and {b} are cut off from each other")
        for one, other in ((a, b), (b, a)):
            self._between[one, other].cut = True
            self._notices.append(partial(self.slots[one].hear_peer, other, Gone()))

    def _miss(self, number: int) -> None:
        """The driver has not heard of a slot for too long."""
        if not self.over:
            self._world.counts["the driver missed a slot"] += 1
            self.rounds.take(number, ClusterGaveUp(f"slot {number} was silent"))

    def _pipes_from(self, number: int) -> list[Pipe]:
        between = [pipe for (a, _), pipe in self._between.items() if a == number]
        return [self._to_driver[number], *between]

    def _pipes_to(self, number: int) -> list[Pipe]:
        between = [pipe for (_, b), pipe in self._between.items() if b == number]
        return [self._from_driver[number], *between]

    # The end

    def stop(self) -> None:
        """The driver says that the attempt is over; some slots do not hear it in time."""
        self.over = True
        for number, slot in enumerate(self.slots):
            if not slot.alive:
                continue
            unheard = self._from_driver[number].cut or not self._is_up(number)
            if unheard or self._world.happens("a slot goes on after its attempt"):
                self._tell(self._from_driver[number], Say.STOP, encode(Stop()))
            else:
                slot.leave()

    def lose_driver(self) -> None:
        """The driver has died; slots will see that."""
        self.over = True
        for pipe in self._from_driver:
            pipe.end()

    def write_late(self) -> bool:
        """Perhaps a writer of a slot that has left comes to the end of what it writes."""
        slots = [slot for slot in self.slots if slot.late_writes]
        if not slots:
            return False
        slot = self._random.choice(slots)
        with self._world.worker(f"a writer of {slot.name}, which has left,"):
            slot.late_writes.pop(0)()
        return True


class ResidentCluster:
    """All processes but the driver.

    Attributes:
        fleet: the slots of the attempt that runs now.
        zombies: those of attempts that are over, with how long each has still to live.
    """

    def __init__(self, world: World) -> None:
        self.fleet: Fleet | None = None
        self.zombies: dict[Fleet, int] = {}
        self._world = world
        self._stirring = False

    def start(self, job: PlannedJob, code: JobCode, attempt: int) -> None:
        """An attempt starts; slots of earlier ones may call."""
        self.fleet = Fleet(self._world, job, replace(code, id=job.name), attempt)
        for slot in (slot for zombie in self.zombies for slot in zombie.slots):
            calls = slot.alive and self._world.happens("a slot of an earlier attempt calls")
            if calls and self.fleet.rounds.admits(slot.hello):
                self._world.violate(f"{slot.name} is taken for one of attempt {attempt}")

    def stop(self) -> None:
        """The attempt that runs, if one does, is over."""
        fleet, self.fleet = self.fleet, None
        if fleet is not None:
            fleet.stop()
            self.zombies[fleet] = self._world.random.randrange(10, 400)

    def lose_driver(self) -> None:
        """The driver has died; what it ran goes on for a while."""
        fleet, self.fleet = self.fleet, None
        if fleet is not None:
            fleet.lose_driver()
            self.zombies[fleet] = self._world.random.randrange(10, 400)

    def crash(self) -> None:
        """All processes end."""
        self.fleet = None
        self.zombies.clear()

    def stir(self) -> None:
        """The slots do something while the driver does something else."""
        if self._stirring:
            return
        self._stirring = True
        try:
            if self.fleet is not None and self._world.random.random() < 0.3:
                self.fleet.act()
            if self.zombies and self._world.happens("a zombie goes on"):
                self._stir_zombie(self._world.random.choice(list(self.zombies)))
        finally:
            self._stirring = False

    def _stir_zombie(self, fleet: Fleet) -> None:
        acts = min(self.zombies[fleet], self._world.random.choice((1, 10, 50)))
        self.zombies[fleet] -= acts
        if not self._let_act(fleet, acts) or not self.zombies[fleet]:
            del self.zombies[fleet]

    def _let_act(self, fleet: Fleet, moments: int) -> bool:
        """Slots of an attempt that is over go on; returns whether something is left of them."""
        self._world.late = True
        try:
            if fleet.write_late():
                return True
            # NB: all of them, not only until one could act
            return sum(fleet.act() for _ in range(moments)) > 0
        finally:
            self._world.late = False
