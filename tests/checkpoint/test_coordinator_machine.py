"""Any order of events that an executor can produce keeps the coordinator's promises."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.events import (
    AnswerSavepoint,
    AttemptStarting,
    CheckpointSettings,
    CheckpointStatus,
    DiscardCheckpoint,
    EpochAccepted,
    EpochFailed,
    EpochStarting,
    Event,
    FailJob,
    InjectBarrier,
    Instruction,
    JobEnding,
    MetadataFailed,
    MetadataWritten,
    Outcome,
    SavepointRequested,
    StopJob,
    WriteMetadata,
)

SETTINGS = st.builds(
    CheckpointSettings,
    interval_ms=st.sampled_from([1, 1, 5, 20, None]),
    timeout_ms=st.integers(10, 100),
    min_pause_ms=st.sampled_from([0, 0, 20]),
    max_concurrent=st.integers(1, 3),
    tolerable_failures=st.integers(0, 3),
    retained=st.integers(1, 3),
    retain_on_cancellation=st.booleans(),
)
#: how long something takes
TIME = st.integers(0, 20)


class Job(RuleBasedStateMachine):
    """An executor without work, with a checkpoint directory that is a set of ids."""

    @initialize(
        settings=SETTINGS,
        found=st.sets(st.integers(1, 9), max_size=3),
        patience=st.sampled_from([1, 3, 8, 15]),
    )
    def start(self, settings: CheckpointSettings, found: set[int], patience: int) -> None:
        self.settings = settings
        #: how many epochs must be accepted between two disturbances, and how many were
        self.patience, self.calm = patience, 0
        self.repeated = False
        self.now = 0
        self.last_id = 9
        #: the metadata that is in place, and those of it that were ever complete
        self.store, self.complete = set(found), set(found)
        self.boot()

    def boot(self) -> None:
        self.it = Coordinator(self.settings, self.last_id + 1, self.store, history=5)
        self.epoch = 0
        self.running = self.ended = self.stopping = False
        #: told to be written; the answer is still out
        self.writing: dict[int, WriteMetadata] = {}
        #: what listeners of this attempt must hear of
        self.completed_to_tell: set[int] = set()
        self.aborted_to_tell: set[int] = set()
        self.asked: list[SavepointRequested] = []
        #: all barriers that are not of a savepoint
        self.periodic: set[int] = set()
        self.do(AttemptStarting(self.now, max(self.store, default=None)))

    # What the executor tells

    @precondition(lambda self: not (self.running or self.ended or self.it.must_wait))
    @rule(after=TIME, forced=st.booleans())
    def start_epoch(self, after: int, forced: bool) -> None:
        self.now += after
        self.running = True
        self.carries: int | None = None
        self.do(EpochStarting(self.epoch, self.now, forced))
        told = self.it.notifications()
        assert self.completed_to_tell <= set(told.completed)
        assert self.aborted_to_tell <= set(told.aborted)
        assert not set(told.completed) & set(told.aborted)
        self.told = told

    @precondition(lambda self: self.running)
    @rule(after=TIME, failures=st.sampled_from([(), (), ("boom",)]))
    def accept_epoch(self, after: int, failures: tuple[str, ...]) -> None:
        self.now += after
        self.running = False
        self.completed_to_tell -= set(self.told.completed)
        self.aborted_to_tell -= set(self.told.aborted)
        self.do(EpochAccepted(self.epoch, self.now, failures))
        self.epoch += 1
        self.calm += 1
        self.repeated = False

    @precondition(lambda self: self.running and not self.repeated)
    @rule(after=TIME)
    def repeat_epoch(self, after: int) -> None:
        self.repeated = True
        self.now += after
        self.running = False
        self.do(EpochFailed(self.epoch, self.now, again=True))

    @precondition(lambda self: self.writing)
    @rule(after=TIME, fails=st.sampled_from([False, False, True]), data=st.data())
    def answer_write(self, after: int, fails: bool, data: st.DataObject) -> None:
        self.now += after
        checkpoint = data.draw(st.sampled_from(sorted(self.writing)))
        write = self.writing.pop(checkpoint)
        alive = checkpoint in self.it.in_flight
        if fails:
            self.do(MetadataFailed(checkpoint, self.now, "disk full"))
            return
        if write.in_store:
            self.store.add(checkpoint)
            if alive:
                self.complete.add(checkpoint)
        if alive and write.in_store:
            older = {c for c in self.periodic & set(self.it.in_flight) if c < checkpoint}
            self.aborted_to_tell |= older
        if alive and (write.in_store or (write.savepoint and write.savepoint.stop)):
            self.completed_to_tell.add(checkpoint)
        self.do(MetadataWritten(checkpoint, self.now, 1, "path"))

    @precondition(lambda self: not self.ended and self.calm > len(self.asked))
    @rule(stop=st.sampled_from([False, False, False, True]), drain=st.booleans())
    def ask_for_savepoint(self, stop: bool, drain: bool) -> None:
        request = SavepointRequested("/sp", stop, stop and drain, str(len(self.asked)))
        self.asked.append(request)
        self.do(request)

    @precondition(lambda self: self.ended or self.calm >= self.patience)
    @rule(data=st.data())
    def disturb(self, data: st.DataObject) -> None:
        self.calm = 0
        what = ["die"] if self.ended else ["restart", "restart", "end", "die"]
        match data.draw(st.sampled_from(what)):
            case "restart":
                self.restart()
            case "end":
                self.end(data.draw(st.sampled_from(Outcome)))
            case _:
                self.die(data.draw(st.booleans()))

    def restart(self) -> None:
        if self.running:
            self.do(EpochFailed(self.epoch, self.now))
            self.running = False
        restored = max(self.it.completed, default=None)
        self.completed_to_tell = {c for c in self.completed_to_tell if c <= (restored or -1)}
        self.stopping = False
        self.do(AttemptStarting(self.now, restored))
        self.aborted_to_tell = set()

    def end(self, outcome: Outcome) -> None:
        self.running = False
        self.ended = True
        self.do(JobEnding(self.now, outcome))
        assert not self.asked

    def die(self, landed: bool) -> None:
        if landed:
            written = {c for c, write in self.writing.items() if write.in_store}
            self.store |= written
            self.complete |= written
        self.boot()

    # What the executor is told

    def do(self, event: Event) -> None:
        before = set(self.it.in_flight)
        instructions = self.it.handle(event)
        for instruction in instructions:
            self.obey(instruction)
        if not isinstance(event, MetadataWritten):
            self.aborted_to_tell |= before - set(self.it.in_flight)
        if isinstance(event, EpochStarting):
            assert set(self.it.in_flight) - before <= {self.carries}
            return
        if isinstance(event, MetadataWritten):
            assert not self.aborted_to_tell & set(self.it.in_flight)
        if any(isinstance(i, FailJob) for i in instructions):
            assert isinstance(event, EpochAccepted | MetadataFailed)

    def obey(self, instruction: Instruction) -> None:
        match instruction:
            case InjectBarrier(checkpoint, timestamp, savepoint):
                assert checkpoint > self.last_id
                assert timestamp == self.now
                assert not self.stopping
                self.last_id = self.carries = checkpoint
                if savepoint is None:
                    assert self.settings.interval_ms is not None
                    self.periodic.add(checkpoint)
            case WriteMetadata(checkpoint, epoch):
                assert (checkpoint, epoch) == (self.carries, self.epoch)
                self.writing[checkpoint] = instruction
            case DiscardCheckpoint(checkpoint):
                newer = any(other > checkpoint for other in self.store & self.complete)
                assert self.ended or newer or checkpoint not in self.complete
                self.store.remove(checkpoint)
                self.complete.discard(checkpoint)
            case AnswerSavepoint(request):
                self.asked.remove(request)
            case StopJob():
                self.stopping = True

    # What always holds

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "it"):
            return
        flight = self.it.in_flight
        assert len(set(flight)) == len(flight)
        assert len(self.periodic.intersection(flight)) <= self.settings.max_concurrent
        assert len(flight) - len(self.writing.keys() & set(flight)) <= self.running
        assert set(self.it.completed) <= self.store
        assert self.ended or not self.complete or self.store & self.complete
        pending = self.it.notifications()
        if not self.running:
            assert self.completed_to_tell <= set(pending.completed)
            assert self.aborted_to_tell <= set(pending.aborted)
        in_progress = [r.id for r in self.it.history() if r.status is CheckpointStatus.IN_PROGRESS]
        assert sorted(in_progress) == sorted(flight)
        assert len(self.it.history()) <= 5 + len(flight)
        counts = self.it.counts
        assert counts.triggered == counts.completed + counts.failed + len(flight)


Job.TestCase.settings = hypothesis_settings(max_examples=200, stateful_step_count=60, deadline=None)
TestJob = Job.TestCase
