"""Figures over time: what a point says, and that old ones are merged and never too many."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest

from holdfast.history.events import (
    CheckpointSeen,
    EpochEnded,
    PointSeen,
    SubtaskFigures,
    SubtasksSeen,
    VertexPoint,
)
from holdfast.history.job import JobHistory
from holdfast.history.points import PointSeries, PointStart, at_most, merged, point_since
from holdfast.plan.vertices import JobGraph, Vertex, VertexOperator

SOURCE = VertexOperator("from", 0, "orders", "source", False, True, ())
SINK = VertexOperator("to", 1, "file", "sink", False, False, (), sink=True)
GRAPH = JobGraph("job", (Vertex("v", "orders", 0, 2, 128, (SOURCE, SINK), ("from",), ()),))
NOW = 1_700_000_000_000
EPOCH = EpochEnded(3, NOW, 1.0, 10, 20, 100, {}, memory=4000, state=300)


def point(number: int, vertices: int = 1, rate: float = 1.0) -> PointSeen:
    """One of many that follow each other without a gap."""
    known = {f"v{n}": VertexPoint(rate, rate, 500, 0, number) for n in range(vertices)}
    return PointSeen(NOW + 5000 * number, 5000, rate, rate, known, state=number)


def test_a_point_is_what_happened_since_the_last_one() -> None:
    before = [SubtaskFigures(records_in=10, busy=1.0, idle=9.0), SubtaskFigures()]
    after = [
        SubtaskFigures(
            records_in=30, busy=4.0, idle=10.0, blocked=1.0, watermark=NOW - 50, written={"to": 8}
        ),
        SubtaskFigures(records_in=40, records_out=2, idle=10.0, watermark=NOW - 20),
    ]
    metrics = {
        "to": {
            "0": {
                "rows": 3,
                "sizes": {"count": 2, "sum": 9, "min": 4, "max": 5},
                "text": "text",
                "none": math.nan,
                "other": {"min": "a"},
            },
            "1": {"rows": 4, "sizes": {"count": 0, "sum": 0, "min": None, "max": None}},
        }
    }
    ended = [
        CheckpointSeen(2, "COMPLETED", NOW - 4000, ended=NOW - 3700),
        CheckpointSeen(3, "FAILED", NOW - 2000, ended=NOW - 1900),
    ]
    found = point_since(
        PointStart(NOW - 5000, {"v": before}),
        NOW,
        GRAPH,
        SubtasksSeen(NOW, {"v": after}, metrics),
        ended,
        EPOCH,
    )
    assert found == PointSeen(
        time=NOW,
        span=5000,
        read=12.0,
        written=1.6,
        vertices={"v": VertexPoint(12.0, 2.0, busy=600, blocked=200, lag=50)},
        state=300,
        memory=4000,
        checkpoint=300,
        failed=1,
        metrics={"to": {"rows": 7, "sizes": (2, 9, 4, 5)}},
    )


@pytest.mark.parametrize("mark", [None, 1000, 2**63 - 1])
def test_a_watermark_that_is_no_time_of_day_has_no_lag(mark: int | None) -> None:
    seen = SubtasksSeen(NOW, {"v": [SubtaskFigures(watermark=mark)]})
    found = point_since(PointStart(NOW - 5000, {}), NOW, GRAPH, seen, [], EPOCH)
    assert found.vertices["v"].lag is None


def test_of_two_points_rates_are_means_and_delays_the_longest() -> None:
    one = PointSeen(10_000, 1000, 2.0, 0.0, {"v": VertexPoint(2, 2, 0, 900, 7)}, 5, checkpoint=40)
    two = PointSeen(13_000, 3000, 6.0, 4.0, {"v": VertexPoint(6, 2, 400, 100, None)}, 9, failed=2)
    assert merged(one, two) == PointSeen(
        13_000, 4000, 5.0, 3.0, {"v": VertexPoint(5, 2, 300, 300, 7)}, 9, checkpoint=40, failed=2
    )


def test_however_long_a_job_runs_it_has_a_few_hundred_points() -> None:
    """The last minutes are exact, and the first hours are still there."""
    series, step = PointSeries(), 5000
    for number in range(step):
        series.add(point(number))
    found = series.points
    assert len(found) == 480
    spans = [one.span for one in found]
    assert found[0].time - found[0].span == NOW - 5000  # nothing is forgotten
    assert sum(spans) == 5000 * step
    assert spans[-40:] == [5000] * 40
    assert max(spans[:10]) >= 20 * 5000
    assert all(later.time - later.span == one.time for one, later in itertools.pairwise(found))
    assert {one.read for one in found} == {1.0}


def test_more_vertices_have_fewer_points() -> None:
    sizes = []
    for vertices in (1, 20, 200):
        series = PointSeries()
        for number in range(600):
            series.add(point(number, vertices))
        sizes.append(len(series.points))
        assert len(msgspec.json.encode(series.points)) < 1_000_000  # of a journal's four
    assert sizes == [480, 240, 60]


def test_a_history_read_again_has_the_same_points() -> None:
    history = JobHistory([point(number) for number in range(1000)])
    assert JobHistory(history.remembered()).series.points == history.series.points


def test_an_answer_has_no_more_points_than_wanted() -> None:
    points = [point(number, rate=float(number % 2)) for number in range(100)]
    found = at_most(points, 10)
    assert [one.span for one in found] == [50_000] * 10
    assert {one.read for one in found} == {0.5}
    assert at_most(points[:3], 10) == points[:3]
    assert at_most([], 10) == []
