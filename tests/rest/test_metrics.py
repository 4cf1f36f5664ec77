"""Metrics for Prometheus, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.rest.conftest import Serve
from tests.serving import JOB_ID, LocalJob, counting

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


def test_tasks(samples: dict[str, list[Sample]]) -> None:
    by_task: dict[str, float] = {}
    for sample in samples["flink_taskmanager_job_task_numRecordsIn"]:
        name = sample.labels["task_name"]
        by_task[name] = by_task.get(name, 0) + sample.value
    assert set(by_task.values()) == {20}
    assert "Counts -> Collect" in by_task
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
