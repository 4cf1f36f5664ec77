"""Any order of events that an executor can produce keeps the coordinator's promises."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.events import (
    AnswerRequest,
    AttemptStarting,
    CheckpointRequested,
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
    Notifications,
    Outcome,
    ReportCheckpoint,
    StopJob,
    SubtaskAcknowledged,
    TimePassed,
    WriteMetadata,
)
from tests.checkpoint.coordinating import Reports

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
        #: how many requests there ever were
        self.requests = 0
        #: the metadata that is in place, and those of it that were ever complete
        self.store, self.complete = set(found), set(found)
        self.boot()

    def boot(self) -> None:
        self.it = Coordinator(self.settings, self.last_id + 1, self.store)
        self.epoch = 0
        self.running = self.ended = self.stopping = False
        #: told to be written; the answer is still out
        self.writing: dict[int, WriteMetadata] = {}
        #: what listeners of this attempt must hear of
        self.completed_to_tell: set[int] = set()
        self.aborted_to_tell: set[int] = set()
        #: the requests that wait for an epoch, oldest first, and those that a checkpoint answers
        self.waiting: list[CheckpointRequested] = []
        self.carried: dict[int, list[CheckpointRequested]] = {}
        #: all barriers that are not of a savepoint, also those that somebody asked for
        self.periodic: set[int] = set()
        self.reports = Reports()
        self.do(AttemptStarting(self.now, max(self.store, default=None)))

    # What the executor tells

    @precondition(lambda self: not (self.running or self.ended or self.it.must_wait))
    @rule(after=TIME, forced=st.booleans())
    def start_epoch(self, after: int, forced: bool) -> None:
        due = self.it.due_in(self.now, forced)
        self.now += after
        self.running = True
        self.carries: int | None = None
        has_news = self.it.notifications() != Notifications()
        expired = self.it.expired(self.now)
        self.do(EpochStarting(self.epoch, self.now, forced))
        if self.carries is not None or has_news or expired:
            assert due is not None
            assert due <= after, "something was to be done, and nobody had asked for an epoch"
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
        self.do(EpochFailed(self.epoch, self.now))

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

    @precondition(lambda self: not (self.running or self.ended))
    @rule(after=st.sampled_from([0, 20, 101]))
    def pass_time(self, after: int) -> None:
        self.now += after
        expired = set(self.it.expired(self.now))
        assert expired <= set(self.it.in_flight)
        acks = (SubtaskAcknowledged(0, 0, "map (1/1)", None),)
        flight = set(self.it.in_flight)
        self.do(TimePassed(self.now, dict.fromkeys(expired, acks)))
        assert set(self.it.in_flight) == flight - expired
        assert all(self.reports[checkpoint].late == {(0, 0)} for checkpoint in expired)

    @precondition(lambda self: self.may_ask())
    @rule(stop=st.sampled_from([False, False, False, True]), drain=st.booleans())
    def ask_for_savepoint(self, stop: bool, drain: bool) -> None:
        self.ask(CheckpointRequested("/sp", stop, stop and drain, str(self.requests)))

    @precondition(lambda self: self.may_ask() and self.settings.enabled)
    @rule()
    def ask_for_checkpoint(self) -> None:
        self.ask(CheckpointRequested(request=str(self.requests)))

    def may_ask(self) -> bool:
        return not self.ended and self.calm > len(self.unanswered())

    def unanswered(self) -> list[CheckpointRequested]:
        return [*self.waiting, *(request for some in self.carried.values() for request in some)]

    def ask(self, request: CheckpointRequested) -> None:
        self.requests += 1
        self.waiting.append(request)
        self.do(request)
        assert (request in self.waiting) is not self.stopping

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
        assert not self.unanswered()
        assert not self.reports.in_progress

    def die(self, landed: bool) -> None:
        if landed:
            written = {c for c, write in self.writing.items() if write.in_store}
            self.store |= written
            self.complete |= written
        self.boot()

    def teardown(self) -> None:
        if hasattr(self, "it") and not self.ended:
            self.end(Outcome.FAILED)

    # What the executor is told

    def do(self, event: Event) -> None:
        before = set(self.it.in_flight)
        instructions = self.it.handle(event)
        triggered, completed, failed = self.reports.counts
        for instruction in instructions:
            self.obey(instruction)
        barriers = [i for i in instructions if isinstance(i, InjectBarrier)]
        assert self.reports.counts.triggered == triggered + len(barriers)
        ended = before - set(self.it.in_flight)
        assert sum(self.reports.counts[1:]) == completed + failed + len(ended)
        if not isinstance(event, MetadataWritten):
            self.aborted_to_tell |= ended
        if isinstance(event, EpochStarting):
            assert set(self.it.in_flight) - before <= {self.carries}
            return
        if isinstance(event, MetadataWritten):
            assert not self.aborted_to_tell & set(self.it.in_flight)
        reports = [i for i in instructions if isinstance(i, ReportCheckpoint)]
        by_themselves = [report for report in reports if report.is_failure]
        if any(isinstance(i, FailJob) for i in instructions):
            assert by_themselves
        if by_themselves:
            assert isinstance(event, EpochAccepted | MetadataFailed | TimePassed)

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
                self.carry(checkpoint, savepoint)
                record = self.reports[checkpoint].record
                assert record.trigger_timestamp == timestamp
                assert record.savepoint is (savepoint is not None)
            case WriteMetadata(checkpoint, epoch):
                assert (checkpoint, epoch) == (self.carries, self.epoch)
                self.writing[checkpoint] = instruction
            case DiscardCheckpoint(checkpoint):
                newer = any(other > checkpoint for other in self.store & self.complete)
                assert self.ended or newer or checkpoint not in self.complete
                self.store.remove(checkpoint)
                self.complete.discard(checkpoint)
            case AnswerRequest():
                self.hear(instruction)
            case ReportCheckpoint():
                self.reports.add(instruction)
            case StopJob():
                self.stopping = True

    def carry(self, checkpoint: int, savepoint: CheckpointRequested | None) -> None:
        """See that a checkpoint is for those who have waited longest; if for none, it is due."""
        before = [c for c in self.periodic.intersection(self.it.in_flight) if c != checkpoint]
        room = len(before) < self.settings.max_concurrent
        able = [r for r in self.waiting if r.directory is not None or room]
        if not able:
            assert savepoint is None
            return
        assert savepoint == (None if able[0].directory is None else able[0])
        same = [r for r in able if r.directory is None]
        self.carried[checkpoint] = same if savepoint is None else [savepoint]
        self.waiting = [r for r in self.waiting if r not in self.carried[checkpoint]]

    def hear(self, answer: AnswerRequest) -> None:
        """See that an answer is the only one, and says the same as the report."""
        if answer.checkpoint_id == 0:
            self.waiting.remove(answer.request)
            assert answer.failure is not None
            assert answer.path is None
            return
        self.carried[answer.checkpoint_id].remove(answer.request)
        record = self.reports[answer.checkpoint_id].record
        assert record.status is not CheckpointStatus.IN_PROGRESS
        assert (answer.path, answer.failure) == (record.path, record.failure)

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
        assert sorted(self.reports.in_progress) == sorted(flight)
        counts = self.reports.counts
        assert counts.triggered == counts.completed + counts.failed + len(flight)
        assert {checkpoint for checkpoint, some in self.carried.items() if some} <= set(flight)


Job.TestCase.settings = hypothesis_settings(max_examples=100, stateful_step_count=60, deadline=None)
TestJob = Job.TestCase
