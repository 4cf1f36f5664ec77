"""Drives a coordinator without an executor, and folds what it reports about its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.events import (
    CheckpointRecord,
    CheckpointSettings,
    CheckpointStatus,
    EpochAccepted,
    EpochStarting,
    Event,
    InjectBarrier,
    Instruction,
    MetadataWritten,
    ReportCheckpoint,
    WriteMetadata,
)


class Counts(NamedTuple):
    triggered: int = 0
    completed: int = 0
    failed: int = 0


class Reports:
    """The last report of each checkpoint, oldest checkpoint first.

    Invariant: a checkpoint is reported once when it is triggered, and then once when it ends.
    """

    def __init__(self) -> None:
        self._last: dict[int, ReportCheckpoint] = {}

    def __getitem__(self, checkpoint: int) -> ReportCheckpoint:
        return self._last[checkpoint]

    def add(self, report: ReportCheckpoint) -> None:
        record = report.record
        if record.status is CheckpointStatus.IN_PROGRESS:
            assert record.id not in self._last, f"{record} is not the first report"
            assert report == ReportCheckpoint(_in_progress(record))
        else:
            assert record.id in self._last, f"{record} ended, and never began"
            assert self._last[record.id].record == _in_progress(record)
            assert record.end_timestamp is not None
            assert (record.failure is not None) is (record.status is CheckpointStatus.FAILED)
        self._last[record.id] = report

    @property
    def records(self) -> list[CheckpointRecord]:
        return [report.record for report in self._last.values()]

    @property
    def in_progress(self) -> list[int]:
        return [r.id for r in self.records if r.status is CheckpointStatus.IN_PROGRESS]

    @property
    def counts(self) -> Counts:
        statuses = [record.status for record in self.records]
        return Counts(
            len(statuses),
            statuses.count(CheckpointStatus.COMPLETED),
            statuses.count(CheckpointStatus.FAILED),
        )


class Observed(Coordinator):
    """A coordinator whose reports are folded."""

    def __init__(
        self, settings: CheckpointSettings, first_id: int = 1, completed: Iterable[int] = ()
    ) -> None:
        super().__init__(settings, first_id, completed)
        self.reports = Reports()

    def handle(self, event: Event) -> list[Instruction]:
        instructions = super().handle(event)
        for instruction in instructions:
            if isinstance(instruction, ReportCheckpoint):
                self.reports.add(instruction)
        return instructions


def without_reports(instructions: Iterable[Instruction]) -> list[Instruction]:
    return [i for i in instructions if not isinstance(i, ReportCheckpoint)]


def coordinator(interval_ms: int | None = 1000, **settings: Any) -> Observed:
    """A coordinator whose first epoch was at time 0."""
    result = Observed(CheckpointSettings(interval_ms, **settings))
    assert handle(result, EpochStarting(0, 0), EpochAccepted(0, 0)) == []
    return result


def handle(target: Coordinator, *events: Event) -> list[Instruction]:
    """What the coordinator says to the events; its reports are in `Observed.reports`."""
    return without_reports(said for event in events for said in target.handle(event))


@dataclass
class Run:
    """Runs epochs of no length, with metadata that is written at once."""

    coordinator: Coordinator
    epoch: int = 0
    said: list[Instruction] = field(default_factory=list)

    def at(self, now: int, *failures: str, forced: bool = False) -> list[int]:
        """Run an epoch; the checkpoint that it carried, if any, is returned."""
        self.epoch += 1
        self._do(EpochStarting(self.epoch, now, forced))
        carried = [i.checkpoint_id for i in self.said if isinstance(i, InjectBarrier)]
        self._do(EpochAccepted(self.epoch, now, failures))
        for write in [i for i in self.said if isinstance(i, WriteMetadata)]:
            self._do(MetadataWritten(write.checkpoint_id, now, 10, "path"))
        self.said, said = [], self.said
        others = without_reports(said)
        self.last = [i for i in others if not isinstance(i, InjectBarrier | WriteMetadata)]
        return carried

    def _do(self, event: Event) -> None:
        self.said += self.coordinator.handle(event)


def _in_progress(record: CheckpointRecord) -> CheckpointRecord:
    """The record as it was when the checkpoint was triggered."""
    return CheckpointRecord(
        record.id,
        CheckpointStatus.IN_PROGRESS,
        record.trigger_timestamp,
        savepoint=record.savepoint,
    )
