"""Metrics for Prometheus, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.functions import SinkFunction
from tests.rest.conftest import Serve
from tests.serving import JOB_ID, LocalJob, checkpoints_in, counting

DASHBOARD = Path(__file__).parents[2] / "ops" / "grafana" / "holdfast.json"
NAME = re.compile(r"\b(?:flink|holdfast)_\w+")


@pytest.fixture(scope="module")
def samples(serve: Serve, settings: dict[str, str]) -> dict[str, list[Sample]]:
    job = LocalJob(counting(settings, timed=True))
    with job.run:
        job.run.epoch()
        job.run.epoch(checkpoint=True)
        reply = serve(job)("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        found.setdefault(family.name, []).extend(family.samples)
    return found


def test_the_job(samples: dict[str, list[Sample]]) -> None:
    (completed,) = samples["flink_jobmanager_job_numberOfCompletedCheckpoints"]
    assert completed.labels == {"job_id": JOB_ID, "job_name": "<b>orders</b>"}
    assert completed.value == 1
    (size,) = samples["flink_jobmanager_job_lastCheckpointFullSize"]
    assert size.value > 0
    (read,) = samples["holdfast_job_records_read"]
    assert read.value == 20


class Fails(SinkFunction):
    """Accepts everything, until it fails once."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def invoke(self, value: Any, context: Any) -> None:
        if value == 25 and not self._marker.exists():
            self._marker.touch()
            raise ValueError(value)


def test_sinks_tell_what_they_accepted(serve: Serve, tmp_path: Path) -> None:
    """Each sink of a chain counts by itself; what a failed run wrote does not count."""
    env = StreamExecutionEnvironment(
        Configuration({"execution.checkpointing.interval": "1h"})
    ).set_parallelism(1)
    numbers = env.from_collection(list(range(30))).name("numbers")
    numbers.add_sink(Fails(tmp_path / "failed")).name("all").uid("all")
    numbers.filter(lambda n: n % 2 == 0).print().name("even").uid("even")
    job = LocalJob(env)
    with job.run:
        job.run.epoch()
        job.run.epoch(checkpoint=True)
        job.fail()
        job.run.epoch()
        ask = serve(job)
        (vertex,) = ask.job("").json["vertices"]
        written = ask.job(f"/vertices/{vertex['id']}").json["written"]
    assert written == {"all": 10, "even": 5}
    assert vertex["now"]["records-written"] == 15
    assert vertex["now"]["records-written-per-second"] > 0
    assert vertex["metrics"]["write-records"] == 0  # to other vertices


def test_over_time(serve: Serve, tmp_path: Path) -> None:
    """Points of all that is charted; with an attempt, counts begin anew."""
    job = LocalJob(counting(checkpoints_in(tmp_path)))
    with job.run:
        job.run.epoch()
        job.run.epoch(checkpoint=True)
        job.recorder.measure()
        job.run.recover()
        job.run.epoch()
        job.recorder.measure()
        ask = serve(job)
        found = ask.job("/series").json
        assert ask.job("/series?points=1").json["records-read"] == [
            pytest.approx(_mean(found["records-read"], found["span"]), abs=0.2)
        ]
        assert ask.job(f"/series?since={found['time'][0]}").json["time"] == found["time"][1:]
        details = ask.job(f"/vertices/{found['vertices'][-1]['id']}").json
    assert len(found["time"]) == 2
    assert all(rate > 0 for rate in found["records-read"] + found["records-written"])
    assert (found["checkpoint-duration"][0] >= 0, found["checkpoint-duration"][1]) == (True, None)
    assert all(size > 0 for size in found["state-bytes"])
    assert [vertex["name"] for vertex in found["vertices"]][-1] == "Counts -> Collect"
    assert all(None not in vertex["records-in"] for vertex in found["vertices"])
    total, sizes = found["metrics"]
    assert (total["operator"], total["name"], total["values"]) == ("counts", "mine.total", [20, 10])
    assert (sizes["is-distribution"], sizes["count"], sizes["values"]) == (True, 10, [10.5, 25.5])
    assert [(one["name"], sum(one["values"])) for one in details["metrics"][:1]] == [
        ("mine.total", 10)
    ]


def _mean(values: list[float], spans: list[int]) -> float:
    pairs = zip(values, spans, strict=True)
    return sum(value * span for value, span in pairs) / sum(spans)


def test_tasks(samples: dict[str, list[Sample]]) -> None:
    by_task: dict[str, float] = {}
    for sample in samples["flink_taskmanager_job_task_numRecordsIn"]:
        name = sample.labels["task_name"]
        by_task[name] = by_task.get(name, 0) + sample.value
    assert set(by_task.values()) == {20}
    assert "Counts -> Collect" in by_task
    written = samples["flink_taskmanager_job_task_numRecordsSend"]
    assert {sample.labels["task_name"] for sample in written} == {"Counts -> Collect"}
    assert sum(sample.value for sample in written) == 20
    marks = samples["flink_taskmanager_job_task_currentInputWatermark"]
    assert {sample.value for sample in marks if sample.labels["task_name"] != "numbers"} == {18}
    for sample in samples["flink_taskmanager_job_task_busyTimeMsPerSecond"]:
        assert 0 <= sample.value <= 1000
        assert set(sample.labels) == {
            "job_id",
            "job_name",
            "task_id",
            "task_name",
            "subtask_index",
        }


def test_users_metrics(samples: dict[str, list[Sample]]) -> None:
    totals = samples["flink_taskmanager_job_task_operator_mine_total"]
    assert sum(sample.value for sample in totals) == 20
    assert {sample.labels["operator_name"] for sample in totals} == {"Counts"}
    assert {sample.labels["operator_id"] for sample in totals} == {"counts"}
    sizes = samples["flink_taskmanager_job_task_operator_sizes_max"]
    assert max(sample.value for sample in sizes) == 20


def test_metrics_of_a_vertex(serve: Serve, settings: dict[str, str], tmp_path: Path) -> None:
    job = LocalJob(counting({"execution.checkpointing.dir": str(tmp_path)}))
    with job.run:
        job.run.epoch()
        ask = serve(job)
        vertex = job.history.graph.vertices[-1].id
        names = [metric["id"] for metric in ask.job(f"/vertices/{vertex}/metrics").json]
        assert {"0.numRecordsIn", "1.numRecordsIn", "0.Counts.mine.total"} <= set(names)
        (total,) = ask.job(f"/vertices/{vertex}/metrics?get=0.Counts.mine.total").json
        (taken,) = ask.job(f"/vertices/{vertex}/metrics?get=0.numRecordsIn").json
        assert int(total["value"]) == int(taken["value"])


def test_the_dashboard_shows_metrics_that_there_are(
    samples: dict[str, list[Sample]],
) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    used = {name for query in queries for name in NAME.findall(query)}
    assert len(used) > 10
    assert used - set(samples) == set()
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(titles) == len(set(titles))
