"""Computes figures of vertices from acknowledgements: records, bytes, load, checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from holdfast.history.events import Parts, SubtaskCheckpoint, SubtaskFigures
from holdfast.plan.model import ROWS_LEVEL
from holdfast.plan.vertices import JobGraph, Vertex
from holdfast.runtime.wire.protocol import Acknowledgement, Flow, Progress, StoredState

#: the steps of a subtask that cannot be attributed to one of its vertices
_SHARED = ("load", "notify", "time", "flush", "snapshot", "persist")
_MS = 1000


class Epoch(msgspec.Struct, frozen=True):
    """An accepted epoch: when it ran, for how long, and its acknowledgements.

    Attributes:
        pause: how long nothing ran before it.
    """

    started: float
    seconds: float
    acks: Sequence[Acknowledgement]
    pause: float = 0.0

    @property
    def span(self) -> float:
        """Return the time that it covers: its records have arrived since the previous epoch."""
        return self.pause + self.seconds

    @property
    def saturated(self) -> bool:
        """Return whether there was more to read."""
        return any(ack.saturated for ack in self.acks)


class Stored(msgspec.Struct, frozen=True):
    """A state that was stored after its barrier was acknowledged, and its number of new bytes."""

    state: StoredState
    written: int


def figures_after(
    graph: JobGraph, before: Mapping[str, Sequence[SubtaskFigures]], epoch: Epoch
) -> dict[str, list[SubtaskFigures]]:
    """Return the figures of all subtasks after an epoch."""
    acks = {(ack.level, ack.subtask): ack for ack in epoch.acks}
    after = {
        vertex.id: [
            _after(graph, vertex, old, acks[vertex.level, subtask], epoch)
            if vertex.level != ROWS_LEVEL
            else _rows_after(graph, vertex, old, epoch)
            for subtask, old in enumerate(before[vertex.id])
        ]
        for vertex in graph.vertices
    }
    return after


def figures_during(
    graph: JobGraph, before: Mapping[str, Sequence[SubtaskFigures]], progress: Iterable[Progress]
) -> dict[str, list[SubtaskFigures]]:
    """Return the figures of all subtasks while an epoch takes long.

    Only rates and loads change: totals are those of the epochs that have ended.
    """
    known = {(each.level, each.subtask): each for each in progress}
    return {
        vertex.id: [
            _during(graph, vertex, old, known[vertex.level, subtask])
            if (vertex.level, subtask) in known
            else old
            for subtask, old in enumerate(before[vertex.id])
        ]
        for vertex in graph.vertices
    }


def _during(
    graph: JobGraph, vertex: Vertex, old: SubtaskFigures, progress: Progress
) -> SubtaskFigures:
    went = _went(graph, vertex, progress)
    spent = _spent(graph, vertex, progress)
    seconds = sum(spent)
    return msgspec.structs.replace(
        old,
        busy_now=spent.per_second(spent.busy),
        idle_now=spent.per_second(spent.idle),
        blocked_now=spent.per_second(spent.blocked),
        in_now=round(_came(vertex, progress).records / seconds, 1),
        out_now=round(went.records / seconds, 1),
        # NB: sinks count what they have accepted at the end of an epoch
        written_now=0.0,
    )


def _after(
    graph: JobGraph, vertex: Vertex, old: SubtaskFigures, ack: Acknowledgement, epoch: Epoch
) -> SubtaskFigures:
    came = _came(vertex, ack)
    went = _went(graph, vertex, ack)
    written = {op.uid: ack.written.get(op.uid, 0) for op in vertex.operators if op.sink}
    spent = _measured(graph, vertex, ack) or _estimated(graph, vertex, ack, epoch)
    return SubtaskFigures(
        records_in=old.records_in + came.records,
        bytes_in=old.bytes_in + came.bytes,
        records_out=old.records_out + went.records,
        bytes_out=old.bytes_out + went.bytes,
        busy=old.busy + spent.busy,
        idle=old.idle + spent.idle,
        blocked=old.blocked + spent.blocked,
        busy_now=spent.per_second(spent.busy),
        idle_now=spent.per_second(spent.idle),
        blocked_now=spent.per_second(spent.blocked),
        in_now=_rate(came.records, epoch),
        out_now=_rate(went.records, epoch),
        watermark=min(
            (ack.watermarks[uid] for uid in vertex.heads if uid in ack.watermarks),
            default=old.watermark,
        ),
        process=ack.process,
        written={uid: old.written.get(uid, 0) + records for uid, records in written.items()},
        written_now=_rate(sum(written.values()), epoch),
    )


class _Spent(NamedTuple):
    """How a subtask spent its time, with respect to one vertex, in seconds."""

    busy: float
    idle: float
    blocked: float

    def per_second(self, seconds: float) -> int:
        """Return one of these times in milliseconds per second."""
        span = sum(self)
        return round(_MS * seconds / span) if span else 0


def _measured(graph: JobGraph, vertex: Vertex, ack: Acknowledgement) -> _Spent | None:
    """Return the times that the subtask measured; None if its engine does not measure them."""
    spent = _spent(graph, vertex, ack)
    return spent if any(spent) else None


def _spent(graph: JobGraph, vertex: Vertex, ack: Acknowledgement | Progress) -> _Spent:
    """Return the times that the subtask measured; a vertex is idle while others are busy."""
    busy = ack.busy_seconds * _part_of_work(graph, vertex, ack)
    idle = ack.idle_seconds + ack.busy_seconds - busy
    return _Spent(busy, idle, ack.backpressured_seconds)


def _estimated(graph: JobGraph, vertex: Vertex, ack: Acknowledgement, epoch: Epoch) -> _Spent:
    """Return times estimated from the durations of the epoch's steps."""
    busy = min(epoch.seconds, _came(vertex, ack).seconds + _share(graph, vertex, ack))
    blocked = _blocked(ack, epoch, busy) if epoch.saturated else 0.0
    return _Spent(busy, max(0.0, epoch.span - busy - blocked), blocked)


def _rows_after(
    graph: JobGraph, vertex: Vertex, old: SubtaskFigures, epoch: Epoch
) -> SubtaskFigures:
    """Return the figures of rows, which Spark reads: only the records that arrived are known."""
    flows = [
        ack.taken[number]
        for number in _exchanges_from(graph, vertex)
        for ack in epoch.acks
        if number in ack.taken
    ]
    went = _sum(flows)
    return SubtaskFigures(
        records_in=old.records_in + went.records,
        bytes_in=old.bytes_in,
        records_out=old.records_out + went.records,
        bytes_out=old.bytes_out + went.bytes,
        in_now=_rate(went.records, epoch),
        out_now=_rate(went.records, epoch),
    )


def _came(vertex: Vertex, ack: Acknowledgement | Progress) -> Flow:
    taken = [ack.taken[edge.exchange] for edge in vertex.inputs if edge.exchange in ack.taken]
    return _sum(
        [*taken, *(ack.read[op.number] for op in vertex.operators if op.number in ack.read)]
    )


def _went(graph: JobGraph, vertex: Vertex, ack: Acknowledgement | Progress) -> Flow:
    return _sum(ack.sent[n] for n in _exchanges_from(graph, vertex) if n in ack.sent)


def _exchanges_from(graph: JobGraph, vertex: Vertex) -> Iterator[int]:
    for other in graph.vertices:
        for edge in other.inputs:
            if edge.id == vertex.id and edge.exchange is not None:
                yield edge.exchange


def _sum(flows: Iterable[Flow]) -> Flow:
    total = Flow()
    for flow in flows:
        total.records += flow.records
        total.bytes += flow.bytes
        total.seconds += flow.seconds
    return total


def _share(graph: JobGraph, vertex: Vertex, ack: Acknowledgement) -> float:
    """Return the share of a vertex in the work that its subtask did for all vertices."""
    shared = sum(ack.seconds.get(step, 0.0) for step in _SHARED)
    return shared * _part_of_work(graph, vertex, ack)


def _part_of_work(graph: JobGraph, vertex: Vertex, ack: Acknowledgement | Progress) -> float:
    """Return the fraction of a subtask's work that was for a vertex: 1 if it has no other."""
    beside = [other for other in graph.vertices if other.level == vertex.level]
    all_work = sum(_came(other, ack).seconds for other in beside)
    if all_work <= 0:
        return 1 / len(beside)
    return _came(vertex, ack).seconds / all_work


def _blocked(ack: Acknowledgement, epoch: Epoch, busy: float) -> float:
    """Return how long a subtask waited for later levels although there was more to read."""
    ran = sum(ack.seconds.get(step, 0.0) for step in (*_SHARED, "process"))
    after = epoch.started + epoch.seconds - (ack.began + ran)
    return max(0.0, min(after, epoch.seconds - busy))


def _rate(records: int, epoch: Epoch) -> float:
    return round(records / epoch.span, 1) if epoch.span else 0.0


def checkpoint_parts(
    graph: JobGraph,
    epoch: Epoch,
    triggered: int,
    known: Set[str],
    stored: Mapping[tuple[int, int], Stored] = MappingProxyType({}),
) -> Parts:
    """Return the part of each subtask in the checkpoint of an epoch, by vertex.

    A subtask whose snapshot failed has no part in any of its vertices, since they share its state.
    The same holds if its state is not stored.

    The state of a level is in one file per subtask. Its size is counted for the first vertex of the
    level that has more state than the position of a source, or else for the first that has any.

    ``known``: the files of the previous checkpoint. ``stored``: the states that were stored after
    the barrier, by (level, subtask).
    """
    acks = {(ack.level, ack.subtask): ack for ack in epoch.acks}
    owners = _owners(graph, epoch.acks)
    return {
        vertex.id: [
            _part(
                acks[place], stored.get(place), triggered, known, owners[vertex.level] == vertex.id
            )
            for place in ((vertex.level, subtask) for subtask in range(vertex.parallelism))
        ]
        for vertex in graph.vertices
        if vertex.level != ROWS_LEVEL
    }


def _owners(graph: JobGraph, acks: Iterable[Acknowledgement]) -> dict[int, str]:
    stateful = {uid for ack in acks for uid in ack.stateful}
    owners: dict[int, tuple[int, str]] = {}
    for vertex in graph.vertices:
        kept = [op for op in vertex.operators if op.uid in stateful]
        rank = 2 if any(not op.source for op in kept) else int(bool(kept))
        if vertex.level not in owners or rank > owners[vertex.level][0]:
            owners[vertex.level] = rank, vertex.id
    return {level: vertex_id for level, (_, vertex_id) in owners.items()}


def _part(
    ack: Acknowledgement, stored: Stored | None, triggered: int, known: Set[str], owns: bool
) -> SubtaskCheckpoint | None:
    if ack.snapshot_failure is not None:
        return None
    part = _acknowledged_part(ack, triggered, known, owns)
    if not ack.storing:
        return part
    if stored is None or stored.state.failure is not None:
        return None
    return msgspec.structs.replace(
        part,
        acknowledged=stored.state.stored,
        asynchronous=round(_MS * stored.state.seconds),
        size=stored.state.head.size if owns else 0,
        written=stored.written if owns else 0,
    )


def _acknowledged_part(
    ack: Acknowledgement, triggered: int, known: Set[str], owns: bool
) -> SubtaskCheckpoint:
    took = ack.seconds
    ran = sum(took.get(step, 0.0) for step in (*_SHARED, "process"))
    new = sum(file.size for file in ack.head.all_files if file.name not in known)
    return SubtaskCheckpoint(
        acknowledged=round(_MS * (ack.began + ran)),
        sync=round(_MS * took.get("snapshot", 0.0)),
        asynchronous=round(_MS * took.get("persist", 0.0)),
        alignment=round(_MS * took.get("wait", 0.0)),
        start_delay=max(0, round(_MS * ack.began) - triggered),
        size=ack.head.size if owns else 0,
        written=new if owns else 0,
    )


def metrics_by_operator(
    metrics: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the users' metrics by operator uid and subtask."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (uid, subtask), values in sorted(metrics.items()):
        if values:
            found.setdefault(uid, {})[str(subtask)] = dict(values)
    return found
