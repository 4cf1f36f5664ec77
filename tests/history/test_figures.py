"""What acknowledgements say of vertices."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.history.events import SubtaskFigures
from holdfast.history.figures import (
    Epoch,
    Stored,
    checkpoint_parts,
    figures_after,
    figures_during,
)
from holdfast.plan.vertices import Input, JobGraph, Vertex, VertexOperator
from holdfast.runtime.wire.protocol import Acknowledgement, Flow, Progress, StoredState
from holdfast.state.format.head import FileRef, Head


def operator(number: int, source: bool = False) -> VertexOperator:
    return VertexOperator(f"op-{number}", number, f"op {number}", "map", not source, source, ())


def vertex(name: str, level: int, op: VertexOperator, *inputs: Input) -> Vertex:
    return Vertex(name, name, level, 1, 128, (op,), (op.uid,), inputs)


#: two sources, in level 0 together, that send to one vertex
GRAPH = JobGraph(
    "job",
    (
        vertex("a", 0, operator(0, True)),
        vertex("b", 0, operator(1, True)),
        vertex("c", 1, operator(2), Input("a", "HASH", 0), Input("b", "HASH", 1)),
    ),
)
NOTHING = {one.id: [SubtaskFigures()] for one in GRAPH.vertices}


def ack(level: int, began: float, seconds: dict[str, float], **more: object) -> Acknowledgement:
    known = {
        "consumed": {},
        "head": Head((FileRef(f"f{level}", 100, -1, 0),), ("s",)),
        "finished": False,
        "saturated": False,
        "records_in": 0,
        "records_out": 0,
        "records_read": 0,
        "metrics": {},
    }
    return Acknowledgement(
        level=level,
        subtask=0,
        stamp="s",
        began=began,
        seconds=seconds,
        **{**known, **more},  # type: ignore[arg-type]
    )


def epoch(saturated: bool) -> Epoch:
    sources = ack(
        0,
        100.0,
        {"process": 4.0, "wait": 0.0, "persist": 0.5},
        read={0: Flow(30, 0, 3.0), 1: Flow(10, 0, 1.0)},
        sent={0: Flow(30, 300), 1: Flow(10, 90)},
        watermarks={"op-0": 7},
        saturated=saturated,
        stateful=("op-0", "op-1"),
    )
    counts = ack(
        1,
        105.0,
        {"load": 0.5, "process": 3.0, "wait": 1.0, "time": 0.5, "snapshot": 0.25, "persist": 0.75},
        taken={0: Flow(30, 300, 1.5), 1: Flow(10, 90, 0.5)},
        stateful=("op-2",),
    )
    return Epoch(100.0, 10.0, [sources, counts])


def test_records_and_bytes() -> None:
    once = figures_after(GRAPH, NOTHING, epoch(False))
    twice = figures_after(GRAPH, once, epoch(False))
    totals = {
        name: (f.records_in, f.bytes_in, f.records_out, f.bytes_out) for name, (f,) in twice.items()
    }
    assert totals == {"a": (60, 0, 60, 600), "b": (20, 0, 20, 180), "c": (80, 780, 0, 0)}
    assert (twice["a"][0].in_now, twice["c"][0].in_now) == (3.0, 4.0)
    assert (twice["a"][0].watermark, twice["b"][0].watermark) == (7, None)


@pytest.mark.parametrize("saturated", [False, True])
def test_where_time_goes(saturated: bool) -> None:
    """What a subtask does for its vertices together is shared by their work: 3 to 1 here."""
    after = figures_after(GRAPH, NOTHING, epoch(saturated))
    busy = {name: figures.busy for name, (figures,) in after.items()}
    assert busy == pytest.approx({"a": 3.0 + 0.375, "b": 1.0 + 0.125, "c": 2.0 + 2.0})
    # level 0 ran until 104.5, the epoch until 110
    blocked = {name: figures.blocked for name, (figures,) in after.items()}
    expected = {"a": 5.5, "b": 5.5, "c": 0.0} if saturated else dict.fromkeys("abc", 0.0)
    assert blocked == pytest.approx(expected)
    for (figures,) in after.values():
        assert figures.busy + figures.idle + figures.blocked == pytest.approx(10.0)
        assert figures.busy_now + figures.idle_now + figures.blocked_now == pytest.approx(
            1000, abs=2
        )


def test_where_time_went_as_a_subtask_has_measured_it() -> None:
    """Two vertices of one subtask share its busy time 3 to 1; the rest of that each is idle."""
    told = {"busy_seconds": 0.4, "idle_seconds": 0.5, "backpressured_seconds": 0.1}
    sources, counts = epoch(False).acks
    both = [msgspec.structs.replace(sources, **told), counts]
    figures = figures_after(GRAPH, NOTHING, Epoch(100.0, 10.0, both))
    now = {name: (f.busy_now, f.idle_now, f.blocked_now) for name, (f,) in figures.items()}
    assert now == {"a": (300, 600, 100), "b": (100, 800, 100), "c": (400, 600, 0)}
    (twice,) = figures_after(GRAPH, figures, Epoch(110.0, 10.0, both))["a"]
    assert (twice.busy, twice.idle, twice.blocked) == pytest.approx((0.6, 1.2, 0.2))
    # records per second are of the whole time
    assert twice.in_now == 3.0


def test_while_an_epoch_takes_long_rates_and_loads_are_known() -> None:
    """Two vertices share the busy time of their subtask; of the third one nothing is known."""
    before = figures_after(GRAPH, NOTHING, epoch(False))
    flows = {0: Flow(30, 0, 3.0), 1: Flow(10, 0, 1.0)}
    sofar = Progress(0, 0, {}, {0: Flow(20, 200)}, flows, 0.4, 0.6, 9.0)
    after = figures_during(GRAPH, before, [sofar])
    now = {name: (f.busy_now, f.idle_now, f.blocked_now) for name, (f,) in after.items()}
    assert (now["a"], now["b"]) == ((30, 70, 900), (10, 90, 900))
    assert (after["a"][0].in_now, after["a"][0].out_now) == (3.0, 2.0)
    assert (after["b"][0].in_now, after["b"][0].out_now) == (1.0, 0.0)
    assert after["c"] == before["c"]
    # totals are those of the epochs that have ended
    assert (after["a"][0].records_in, after["a"][0].busy) == (30, before["a"][0].busy)


def test_what_came_in_an_epoch_came_since_the_one_before() -> None:
    """An epoch of 10 s after a pause of 30 s: its 30 records are 0.75 in a second, not 3."""
    after = figures_after(GRAPH, NOTHING, msgspec.structs.replace(epoch(False), pause=30.0))
    (figures,) = after["a"]
    assert figures.in_now == pytest.approx(0.75, abs=0.06)
    assert figures.busy_now == pytest.approx(1000 * 3.375 / 40, abs=1)
    assert figures.busy + figures.idle == pytest.approx(40.0)


def test_the_part_of_each_subtask_in_a_checkpoint() -> None:
    parts = checkpoint_parts(GRAPH, epoch(False), 99_000, {"f0"})
    (counts,) = parts["c"]
    assert counts is not None
    assert (counts.sync, counts.asynchronous, counts.alignment) == (250, 750, 1000)
    assert (counts.start_delay, counts.acknowledged) == (6000, 110_000)
    assert (counts.size, counts.written) == (100, 100)
    # the file of a level counts once, and f0 is not new
    sources = [part for name in "ab" for part in parts[name] if part is not None]
    assert [(part.size, part.written) for part in sources] == [(100, 0), (0, 0)]


def test_a_subtask_whose_snapshot_failed_has_no_part() -> None:
    """Not in either of the vertices that it runs."""
    sources, counts = epoch(False).acks
    failed = msgspec.structs.replace(sources, snapshot_failure="no space")
    parts = checkpoint_parts(GRAPH, Epoch(100.0, 10.0, [failed, counts]), 99_000, set())
    assert (parts["a"], parts["b"]) == ([None], [None])
    assert None not in parts["c"]


def test_what_is_stored_after_the_barrier_has_its_own_figures() -> None:
    acks = [
        ack(0, 100.0, {}, stateful=("op-0",), storing=True),
        ack(1, 100.0, {"persist": 0.5}, stateful=("op-2",)),
    ]
    ran = Epoch(100.0, 1.0, acks)
    parts = checkpoint_parts(GRAPH, ran, 99_000, set())
    assert parts["a"] == parts["b"] == [None]
    head = Head((FileRef("base", 70, -1, 0), FileRef("delta", 5, 0, 1)), ("s", "t"))
    state = StoredState(1, 0, 0, head, stored=104_000, seconds=3.5)
    parts = checkpoint_parts(GRAPH, ran, 99_000, set(), {(0, 0): Stored(state, 5)})
    (a,), (b,), (c,) = parts["a"], parts["b"], parts["c"]
    assert a is not None
    assert b is not None
    assert c is not None
    assert (a.acknowledged, a.asynchronous, a.size, a.written) == (104_000, 3500, 75, 5)
    assert (b.acknowledged, b.size, b.written) == (104_000, 0, 0)
    assert (c.asynchronous, c.size) == (500, 100)
    lost = msgspec.structs.replace(state, failure="disk full")
    parts = checkpoint_parts(GRAPH, ran, 99_000, set(), {(0, 0): Stored(lost, 0)})
    assert parts["a"] == [None]
