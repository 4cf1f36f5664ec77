"""The metrics of jobs, under Flink's names, for the API and for Prometheus.

A metric has a scope, as in Flink: the job, a task (a vertex), or an operator, which has the user's
own metrics. Metrics that Flink does not have are under ``holdfast_job``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from holdfast.history.events import CheckpointSeen, SubtaskCheckpoint, SubtaskFigures
from holdfast.history.job import ENDED, JobHistory
from holdfast.plan.vertices import Vertex
from holdfast.rest.shapes import jobs as shapes
from holdfast.rest.views.jobs import now_ms

#: the content type for Prometheus
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
_JOB: Final = "flink_jobmanager_job"
_TASK: Final = "flink_taskmanager_job_task"
_OPERATOR: Final = "flink_taskmanager_job_task_operator"
_OWN: Final = "holdfast_job"
_MS: Final = 1000
_NS: Final = 1_000_000
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_]")


class Sample(NamedTuple):
    """A value of a metric."""

    scope: str
    name: str
    labels: Mapping[str, str]
    value: float


def samples(history: JobHistory) -> Iterator[Sample]:
    """Yield all metrics of a job."""
    job = {"job_id": history.id, "job_name": history.name}
    for name, value in _of_job(history):
        yield Sample(_JOB, name, job, value)
    for name, labels, value in _own(history):
        yield Sample(_OWN, name, job | labels, value)
    latest = _latest(history)
    for vertex in history.graph.vertices:
        task = job | {"task_id": vertex.id, "task_name": vertex.name}
        parts = {} if latest is None else latest.subtasks
        for subtask, figures in enumerate(history.subtasks.figures[vertex.id]):
            labels = task | {"subtask_index": str(subtask)}
            for name, value in _of_subtask(figures, _nth(parts.get(vertex.id, []), subtask)):
                yield Sample(_TASK, name, labels, value)
        yield from _of_operators(history, vertex, task)


def _nth(parts: list[SubtaskCheckpoint | None], number: int) -> SubtaskCheckpoint | None:
    return parts[number] if number < len(parts) else None


def _latest(history: JobHistory) -> CheckpointSeen | None:
    completed = [seen for seen in history.checkpoints.values() if seen.status == "COMPLETED"]
    return max(completed, key=lambda seen: seen.id, default=None)


def _of_job(history: JobHistory) -> Iterator[tuple[str, float]]:
    counts, latest = history.counts, _latest(history)
    running = history.status == "RUNNING"
    attempt = history.attempts[-1].time if history.attempts else history.started
    restored = [begun.time for begun in history.attempts if begun.checkpoint is not None]
    yield "uptime", now_ms() - attempt if running else 0
    yield "downtime", 0 if running or history.status in ENDED else now_ms() - history.modified
    yield "numRestarts", max(0, counts.attempts - 1)
    yield "fullRestarts", max(0, counts.attempts - 1)
    yield "totalNumberOfCheckpoints", counts.checkpoints
    yield "numberOfCompletedCheckpoints", counts.completed
    yield "numberOfFailedCheckpoints", counts.failed
    yield "numberOfInProgressCheckpoints", counts.checkpoints - counts.completed - counts.failed
    yield "lastCheckpointRestoreTimestamp", restored[-1] if restored else -1
    yield "lastCompletedCheckpointId", -1 if latest is None else latest.id
    yield "lastCheckpointDuration", -1 if latest is None else _duration(latest)
    yield "lastCheckpointSize", -1 if latest is None else latest.written
    yield "lastCheckpointFullSize", -1 if latest is None else latest.size


def _duration(seen: CheckpointSeen) -> int:
    return max(0, (seen.ended or seen.triggered) - seen.triggered)


def _own(history: JobHistory) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "up", {"status": history.status}, int(history.status == "RUNNING")
    yield "epochs", {}, history.counts.epochs
    yield "records_read", {}, history.counts.read
    yield "failures", {}, history.counts.failures
    if history.epochs:
        last = history.epochs[-1]
        yield "epoch_seconds", {}, last.seconds
        yield "epoch_records_read", {}, last.read
        yield "state_bytes", {}, last.state
        yield "worker_memory_bytes", {}, last.memory
        for step, seconds in last.steps.items():
            yield "epoch_step_seconds", {"step": step}, seconds


def _of_subtask(
    figures: SubtaskFigures, part: SubtaskCheckpoint | None
) -> Iterator[tuple[str, float]]:
    yield "numRecordsIn", figures.records_in
    yield "numRecordsOut", figures.records_out
    yield "numBytesIn", figures.bytes_in
    yield "numBytesOut", figures.bytes_out
    yield "numRecordsInPerSecond", figures.in_now
    yield "numRecordsOutPerSecond", figures.out_now
    if figures.written:
        yield "numRecordsSend", sum(figures.written.values())
        yield "numRecordsSendPerSecond", figures.written_now
    yield "busyTimeMsPerSecond", figures.busy_now
    yield "idleTimeMsPerSecond", figures.idle_now
    yield "backPressuredTimeMsPerSecond", figures.blocked_now
    yield "accumulateBusyTimeMs", round(_MS * figures.busy)
    yield "accumulateIdleTimeMs", round(_MS * figures.idle)
    yield "accumulateBackPressuredTimeMs", round(_MS * figures.blocked)
    if figures.watermark is not None:
        yield "currentInputWatermark", figures.watermark
    if part is not None:
        yield "checkpointAlignmentTime", part.alignment * _NS
        yield "checkpointStartDelayNanos", part.start_delay * _NS


def _of_operators(history: JobHistory, vertex: Vertex, task: Mapping[str, str]) -> Iterator[Sample]:
    for op in vertex.operators:
        operator = {**task, "operator_id": op.uid, "operator_name": op.name}
        for subtask, values in history.subtasks.metrics.get(op.uid, {}).items():
            for name, value in _numbers(values):
                yield Sample(_OPERATOR, name, operator | {"subtask_index": subtask}, value)


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield users' metrics that are numbers; a distribution has several."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers({f"{name}_{part}": number for part, number in value.items()})
        elif isinstance(value, int | float):
            yield name, value


def job_metrics(history: JobHistory, wanted: str | None) -> list[shapes.Metric]:
    """Return the metrics of the job itself: their names, or the values of those in ``wanted``."""
    return _told(_of_job(history), wanted)


def vertex_metrics(history: JobHistory, vertex: Vertex, wanted: str | None) -> list[shapes.Metric]:
    """Return the metrics of a vertex, named by subtask, and users' also by operator."""
    latest = _latest(history)
    parts = [] if latest is None else latest.subtasks.get(vertex.id, [])
    found = [
        (f"{subtask}.{name}", value)
        for subtask, figures in enumerate(history.subtasks.figures[vertex.id])
        for name, value in _of_subtask(figures, _nth(parts, subtask))
    ]
    found += [
        (f"{sample.labels['subtask_index']}.{sample.labels['operator_name']}.{sample.name}", value)
        for sample in _of_operators(history, vertex, {})
        for value in [sample.value]
    ]
    return _told(found, wanted)


def _told(found: Iterable[tuple[str, float]], wanted: str | None) -> list[shapes.Metric]:
    if wanted is None:
        return [shapes.Metric(name) for name, _ in found]
    names = set(wanted.split(","))
    return [shapes.Metric(name, str(value)) for name, value in found if name in names]


def exposition(histories: Iterable[JobHistory]) -> bytes:
    """Return all metrics of all jobs, in the format of Prometheus."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    families: dict[str, GaugeMetricFamily] = {}
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for history in histories:
        for sample in history.look(lambda told: list(samples(told))):
            name = f"{sample.scope}_{_UNFIT.sub('_', sample.name)}"
            place = name, tuple(sorted(sample.labels.items()))
            if place in seen:  # two names of a user may become the same
                continue
            seen.add(place)
            family = families.setdefault(name, GaugeMetricFamily(name, sample.name))
            family.add_sample(name, dict(sample.labels), sample.value)

    class Collected(Collector):
        def collect(self) -> Iterable[GaugeMetricFamily]:
            return families.values()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    return generate_latest(registry)
