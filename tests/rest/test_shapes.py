"""The API answers with Flink's fields: all of them, and with what is true of the job."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from tests.serving import JOB_ID, Client, LocalJob

PERCENTILES = {"min", "max", "avg", "p50", "p90", "p95", "p99", "p999"}
IO = {
    "read-bytes",
    "read-bytes-complete",
    "write-bytes",
    "write-bytes-complete",
    "read-records",
    "read-records-complete",
    "write-records",
    "write-records-complete",
    "accumulated-backpressured-time",
    "accumulated-idle-time",
    "accumulated-busy-time",
}
TASK = {
    "id",
    "status",
    "latest_ack_timestamp",
    "checkpointed_size",
    "state_size",
    "end_to_end_duration",
    "alignment_buffered",
    "processed_data",
    "persisted_data",
    "num_subtasks",
    "num_acknowledged_subtasks",
}
CHECKPOINT = TASK | {
    "className",
    "is_savepoint",
    "savepointFormat",
    "trigger_timestamp",
    "checkpoint_type",
    "tasks",
}


EPOCH = {
    "epoch",
    "start-time",
    "duration",
    "records-read",
    "records",
    "quota",
    "steps",
    "memory-bytes",
    "state-bytes",
    "checkpoint",
}
#: without a checkpoint
STEPS = {
    "trigger",
    "load",
    "notify",
    "process",
    "wait",
    "time",
    "flush",
    "persist",
    "acknowledge",
    "agree",
    "deliver",
    "commit",
}


@pytest.fixture(scope="module")
def vertices(ask: Client) -> dict[str, Any]:
    """By name."""
    return {vertex["name"]: vertex for vertex in ask.job().json["vertices"]}


def test_overview(ask: Client) -> None:
    answer = ask("/overview").json
    assert answer["flink-version"].startswith("2.")
    assert answer["holdfast-version"] == holdfast.__version__
    assert {key: answer[key] for key in answer if key.startswith(("jobs-", "slots-", "task"))} == {
        "taskmanagers": 0,  # no epoch of the second attempt yet
        "taskmanagers-blocked": 0,
        "slots-total": 2,
        "slots-available": 0,
        "slots-free-and-blocked": 0,
        "jobs-running": 1,
        "jobs-finished": 0,
        "jobs-cancelled": 0,
        "jobs-failed": 0,
    }


def test_config(ask: Client) -> None:
    answer = ask("/config").json
    assert set(answer) == {
        "refresh-interval",
        "timezone-name",
        "timezone-offset",
        "flink-version",
        "flink-revision",
        "features",
    }
    assert answer["features"] == {
        "web-submit": False,
        "web-cancel": True,
        "web-rescale": True,
        "web-history": False,
    }


def test_jobs(ask: Client) -> None:
    assert ask("/jobs").json == {"jobs": [{"id": JOB_ID, "status": "RUNNING"}]}


def test_jobs_overview(ask: Client, job: LocalJob) -> None:
    (answer,) = ask("/jobs/overview").json["jobs"]
    assert answer["duration"] >= 0
    del answer["duration"]
    assert answer == {
        "jid": JOB_ID,
        "name": "<b>orders</b>",
        "start-time": job.history.started,
        "end-time": -1,
        "state": "RUNNING",
        "last-modification": job.history.timestamps["RUNNING"],
        "tasks": {
            "total": 5,
            "created": 0,
            "scheduled": 0,
            "deploying": 0,
            "running": 5,
            "finished": 0,
            "canceling": 0,
            "canceled": 0,
            "failed": 0,
            "reconciling": 0,
            "initializing": 0,
        },
        "engine": "in-process",
    }


def test_a_job(ask: Client) -> None:
    answer = ask.job().json
    assert set(answer) == {
        "jid",
        "name",
        "isStoppable",
        "state",
        "job-type",
        "start-time",
        "end-time",
        "duration",
        "maxParallelism",
        "now",
        "timestamps",
        "vertices",
        "status-counts",
        "plan",
        "engine",
        "engine-reason",
        "spark-ui",
        "history-directory",
    }
    assert (answer["engine"], answer["engine-reason"]) == ("in-process", "holdfast.testing runs it")
    assert (answer["state"], answer["job-type"], answer["end-time"]) == ("RUNNING", "STREAMING", -1)
    assert set(answer["timestamps"]) == {
        "INITIALIZING",
        "CREATED",
        "RUNNING",
        "FAILING",
        "FAILED",
        "CANCELLING",
        "CANCELED",
        "FINISHED",
        "RESTARTING",
        "SUSPENDED",
        "RECONCILING",
    }
    assert answer["status-counts"]["RUNNING"] == 3


def test_the_vertices_of_a_job(vertices: dict[str, Any]) -> None:
    assert list(vertices) == ["numbers", "Map", "Counts -> Collect"]
    for vertex in vertices.values():
        assert set(vertex) == {
            "id",
            "slotSharingGroupId",
            "name",
            "maxParallelism",
            "parallelism",
            "status",
            "start-time",
            "end-time",
            "duration",
            "tasks",
            "metrics",
            "now",
        }
        assert set(vertex["metrics"]) == IO
        assert vertex["status"] == "RUNNING"
        assert vertex["tasks"]["RUNNING"] == vertex["parallelism"]


def test_plan(ask: Client, vertices: dict[str, Any]) -> None:
    answer = ask.job("/plan").json
    assert set(answer) == {"plan"}
    assert answer["plan"] == ask.job().json["plan"]
    plan = answer["plan"]
    assert (plan["jid"], plan["name"], plan["type"]) == (JOB_ID, "<b>orders</b>", "STREAMING")
    nodes = {node["description"]: node for node in plan["nodes"]}
    assert {name: node["id"] for name, node in nodes.items()} == {
        name: vertex["id"] for name, vertex in vertices.items()
    }
    assert {name: node["parallelism"] for name, node in nodes.items()} == {
        "numbers": 1,
        "Map": 2,
        "Counts -> Collect": 2,
    }
    for node in nodes.values():
        assert {"operator", "operator_strategy", "optimizer_properties"} < set(node)
    assert nodes["numbers"]["inputs"] == []
    assert nodes["Counts -> Collect"]["inputs"] == [
        {
            "num": 0,
            "id": nodes["Map"]["id"],
            "ship_strategy": "HASH",
            "exchange": "pipelined_bounded",
        }
    ]
    assert [op["name"] for op in nodes["Counts -> Collect"]["operators"]] == ["Counts", "Collect"]


def test_job_config(ask: Client) -> None:
    answer = ask.job("/config").json
    assert set(answer) == {"jid", "name", "execution-config", "configuration", "settings"}
    origins = {one["key"]: (one["value"], one["origin"]) for one in answer["settings"]}
    assert origins["execution.checkpointing.num-retained"] == ("3", "program")
    assert origins["execution.checkpointing.mode"] == ("EXACTLY_ONCE", "default")
    assert origins["fs.s3a.secret.key"] == ("******", "program")
    assert list(origins) == sorted(origins)
    assert set(answer["execution-config"]) == {
        "execution-mode",
        "restart-strategy",
        "job-parallelism",
        "object-reuse-mode",
        "user-config",
    }
    assert answer["configuration"]["execution.checkpointing.num-retained"] == "3"


def test_exceptions(ask: Client) -> None:
    answer = ask.job("/exceptions").json
    assert set(answer) == {
        "root-exception",
        "timestamp",
        "all-exceptions",
        "truncated",
        "exceptionHistory",
    }
    (entry,) = answer["exceptionHistory"]["entries"]
    assert set(entry) == {
        "exceptionName",
        "stacktrace",
        "timestamp",
        "taskName",
        "endpoint",
        "taskManagerId",
        "failureLabels",
        "concurrentExceptions",
        "attempt",
        "subtask",
    }
    assert entry["exceptionName"] == "ValueError"
    assert entry["taskName"] in ("Counts (1/2)", "Counts (2/2)")
    assert 'raise ValueError(f"<script>' in entry["stacktrace"]
    assert answer["root-exception"] == entry["stacktrace"]
    assert answer["timestamp"] == entry["timestamp"] > 0
    assert not answer["exceptionHistory"]["truncated"]
    shortened = ask.job("/exceptions?maxExceptions=0").json["exceptionHistory"]
    assert shortened == {"entries": [], "truncated": True}


def test_job_metrics(ask: Client) -> None:
    names = {metric["id"] for metric in ask.job("/metrics").json}
    assert {"numRestarts", "uptime", "lastCheckpointDuration"} < names
    wanted = "numberOfCompletedCheckpoints,numRestarts,nothing"
    assert ask.job(f"/metrics?get={wanted}").json == [
        {"id": "numRestarts", "value": "1"},
        {"id": "numberOfCompletedCheckpoints", "value": "3"},
    ]


def test_vertex(ask: Client, vertices: dict[str, Any]) -> None:
    answer = ask.job(f"/vertices/{vertices['Counts -> Collect']['id']}").json
    assert set(answer) == {
        "id",
        "name",
        "parallelism",
        "maxParallelism",
        "now",
        "aggregated",
        "subtasks",
        "written",
        "metrics",
    }
    assert list(answer["written"].values()) == [0]  # the attempt has begun anew
    assert [subtask["subtask"] for subtask in answer["subtasks"]] == [0, 1]
    for subtask in answer["subtasks"]:
        assert set(subtask) == {
            "subtask",
            "status",
            "attempt",
            "endpoint",
            "start-time",
            "end-time",
            "duration",
            "metrics",
            "taskmanager-id",
            "status-duration",
            "watermark",
            "now",
        }
        assert set(subtask["metrics"]) == IO
        assert subtask["attempt"] == 1
    spread = answer["aggregated"]["metrics"]["read-records"]
    assert set(spread) == {"min", "max", "avg", "sum", "median", "p25", "p75", "p95"}


def test_back_pressure(ask: Client, vertices: dict[str, Any]) -> None:
    answer = ask.job(f"/vertices/{vertices['Map']['id']}/backpressure").json
    assert set(answer) == {"status", "backpressure-level", "end-timestamp", "subtasks"}
    for subtask in answer["subtasks"]:
        assert set(subtask) == {"subtask", "backpressure-level", "ratio", "idleRatio", "busyRatio"}


def test_checkpoints(ask: Client, job: LocalJob, settings: dict[str, str]) -> None:
    answer = ask.job("/checkpoints").json
    assert set(answer) == {"counts", "summary", "latest", "history"}
    assert answer["counts"] == {
        "restored": 1,
        "total": 3,
        "in_progress": 0,
        "completed": 3,
        "failed": 0,
    }
    assert set(answer["summary"]) == {
        "checkpointed_size",
        "state_size",
        "end_to_end_duration",
        "alignment_buffered",
        "processed_data",
        "persisted_data",
    }
    for figures in answer["summary"].values():
        assert set(figures) == PERCENTILES
    assert set(answer["latest"]) == {"completed", "savepoint", "failed", "restored"}
    assert answer["latest"]["completed"]["id"] == 2
    assert answer["latest"]["savepoint"]["id"] == 3
    assert answer["latest"]["failed"] is None
    restored = answer["latest"]["restored"]
    assert set(restored) == {
        "id",
        "restore_timestamp",
        "is_savepoint",
        "savepointFormat",
        "external_path",
    }
    assert restored["id"] == 2
    assert [entry["id"] for entry in answer["history"]] == [3, 2, 1]
    for entry in answer["history"]:
        assert set(entry) == CHECKPOINT | {"external_path", "discarded"}
        assert (entry["status"], entry["className"]) == ("COMPLETED", "completed")
        assert entry["num_subtasks"] == entry["num_acknowledged_subtasks"] == 5
        assert entry["state_size"] >= entry["checkpointed_size"] > 0
        assert not entry["discarded"]
    root = settings["execution.checkpointing.dir"]
    assert answer["history"][1]["external_path"] == f"{root}/-b-orders-b-/chk-2".replace(
        "-b-orders-b-", job.job.checkpoints.store.directory.name
    )


def test_a_checkpoint_that_fails_and_one_in_progress(ask: Client, job: LocalJob) -> None:
    from holdfast.history.events import CheckpointSeen
    from holdfast.history.job import JobHistory
    from holdfast.rest.views.checkpoints import checkpoints

    failed = CheckpointSeen(4, "FAILED", 100, ended=130, failure="no space")
    running = CheckpointSeen(5, "IN_PROGRESS", 140)
    history = JobHistory([*job.history.remembered(), failed, running])
    answer = checkpoints(history)
    first, second = answer.history[:2]
    assert (first.class_name, first.status) == ("in_progress", "IN_PROGRESS")
    assert (second.class_name, second.failure_message, second.failure_timestamp) == (
        "failed",
        "no space",
        130,
    )
    assert second.end_to_end_duration == 30
    assert (answer.counts.in_progress, answer.counts.failed) == (1, 1)
    assert answer.latest.failed == second


def test_checkpoints_config(ask: Client) -> None:
    assert ask.job("/checkpoints/config").json == {
        "mode": "exactly_once",
        "interval": 3_600_000,
        "timeout": 600_000,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {"enabled": True, "delete_on_cancellation": True},
        "state_backend": "HashMapStateBackend",
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 0,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }


def test_checkpoint_details(ask: Client, vertices: dict[str, Any]) -> None:
    answer = ask.job("/checkpoints/details/2").json
    assert set(answer) == CHECKPOINT | {"external_path", "discarded"}
    assert set(answer["tasks"]) == {vertex["id"] for vertex in vertices.values()}
    for task in answer["tasks"].values():
        assert set(task) == TASK
    sizes = [task["state_size"] for task in answer["tasks"].values()]
    assert sum(sizes) == answer["state_size"]
    assert ask.job("/checkpoints/details/99").status == 404


def test_checkpoint_details_of_subtasks(ask: Client, vertices: dict[str, Any]) -> None:
    path = f"/checkpoints/details/2/subtasks/{vertices['Counts -> Collect']['id']}"
    answer = ask.job(path).json
    assert set(answer) == TASK | {"summary", "subtasks"}
    assert set(answer["summary"]) == {
        "checkpointed_size",
        "state_size",
        "end_to_end_duration",
        "checkpoint_duration",
        "alignment",
        "start_delay",
    }
    assert set(answer["summary"]["checkpoint_duration"]) == {"sync", "async"}
    assert set(answer["summary"]["alignment"]) == {
        "buffered",
        "processed",
        "persisted",
        "duration",
    }
    assert [subtask["index"] for subtask in answer["subtasks"]] == [0, 1]
    for subtask in answer["subtasks"]:
        assert set(subtask) == {
            "className",
            "index",
            "status",
            "ack_timestamp",
            "end_to_end_duration",
            "checkpointed_size",
            "state_size",
            "checkpoint",
            "alignment",
            "start_delay",
            "unaligned_checkpoint",
            "aborted",
        }
        assert set(subtask["checkpoint"]) == {"sync", "async"}


def test_epochs(ask: Client) -> None:
    answer = ask.job("/epochs").json
    assert (answer["total"], answer["records-read"]) == (5, 50)
    assert [epoch["checkpoint"] for epoch in answer["epochs"]] == [None, 1, None, 2, 3]
    for epoch in answer["epochs"]:
        assert set(epoch) == EPOCH
        carried = {"snapshot", "complete"} if epoch["checkpoint"] is not None else set()
        assert set(epoch["steps"]) == STEPS | carried
        assert min(epoch["steps"].values()) >= 0
    assert [epoch["epoch"] for epoch in ask.job("/epochs?since=2").json["epochs"]] == [3, 4]


def test_state(ask: Client, job: LocalJob) -> None:
    answer = ask.job("/state").json
    assert answer["checkpoint"] == 3
    operators = {operator["uid"]: operator for operator in answer["operators"]}
    states = {state["name"]: state for state in operators["counts"]["states"]}
    assert (states["count"]["kind"], states["count"]["entries"]) == ("ValueState", 7)
    assert ask.job("/state?checkpoint=1").json["checkpoint"] == 1
    assert ask.job("/state?checkpoint=77").status == 404


def test_entries_page_by_page(ask: Client) -> None:
    """Both subtasks, every key once, in an order that stays."""
    found, after, pages = [], "", 0
    while True:
        query = f"operator=counts&state=count&checkpoint=2&rows=3{after}"
        answer = ask.job(f"/state/entries?{query}").json
        assert (answer["checkpoint"], answer["operator"], answer["state"]) == (2, "counts", "count")
        found += [(row["key"], row["value"]) for row in answer["rows"]]
        pages += 1
        if answer["next"] is None:
            break
        after = f"&after={answer['next']}"
    assert pages == 3
    assert sorted(found) == [(str(key), str(6 if key in range(1, 6) else 5)) for key in range(7)]
    whole = ask.job("/state/entries?operator=counts&state=count&checkpoint=2").json
    assert [(row["key"], row["value"]) for row in whole["rows"]] == found
    maps = ask.job("/state/entries?operator=counts&state=seen&windowed=false&rows=1").json
    assert set(maps["rows"][0]) == {"key", "window", "value", "subtask", "accessed"}
    assert maps["rows"][0]["value"].startswith("{")


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("operator=counts&state=nothing", 404, "nothing"),
        ("operator=nobody&state=count", 404, "nobody"),
        ("operator=counts&state=count&checkpoint=77", 404, "there is no checkpoint 77"),
        ("operator=counts&state=count&after=../etc", 400, "'after' must be"),
        ("operator=counts&state=count&rows=1000", 400, "'rows' must be"),
        ("operator=counts", 400, "'state' is missing"),
    ],
)
def test_entries_that_are_not_there(ask: Client, query: str, status: int, said: str) -> None:
    reply = ask.job(f"/state/entries?{query}")
    assert reply.status == status
    assert said in reply.error


def test_a_place_behind_the_end_has_no_entries(ask: Client) -> None:
    answer = ask.job("/state/entries?operator=counts&state=count&after=999.999").json
    assert (answer["rows"], answer["next"]) == ([], None)


def test_a_key_of_a_state(ask: Client) -> None:
    job = "/state/value?operator=counts"
    assert ask.job(f"{job}&state=count&key=3").json == {
        "operator": "counts",
        "state": "count",
        "key": 3,
        "found": True,
        "value": 6,
    }
    seen = ask.job(f"{job}&state=seen&key=3").json["value"]
    assert seen["3"] == 3
    assert ask.job(f"{job}&state=count&key=999").json["found"] is False
    assert "has saved no state 'cont'" in ask.job(f"{job}&state=cont&key=3").error


def test_two_checkpoints_compared(ask: Client) -> None:
    answer = ask.job("/checkpoints/compare/1/2").json
    assert (answer["before"], answer["after"], answer["truncated"]) == (1, 2, False)
    counts = next(state for state in answer["states"] if state["state"] == "count")
    assert (counts["added"], counts["removed"], counts["changed"]) == (0, 0, 7)
    (third,) = [row for row in counts["rows"] if row["key"] == 3]
    assert (third["change"], third["before"], third["after"]) == ("changed", 3, 6)


def test_what_is_not_there(ask: Client) -> None:
    other = "f" * 32
    assert "no job with the id" in ask(f"/jobs/{other}").error
    assert "no vertex with the id" in ask.job(f"/vertices/{other}").error
    assert ask("/nothing").status == 404
    assert ask("/jobs", "DELETE").status == 405


def test_live(ask: Client) -> None:
    reply = ask.job("/live?events=1")
    assert reply.headers["content-type"].startswith("text/event-stream")
    event, data, *_ = reply.body.decode().split("\n")
    assert event == "event: job"
    import json

    told = json.loads(data.removeprefix("data: "))
    assert set(told) == {"version", "job", "epochs", "checkpoints", "changed"}
    assert told["job"]["jid"] == JOB_ID
    assert told["checkpoints"] == ask.job("/checkpoints").json["counts"]
    assert told["changed"]["exceptions"] > 0


def test_the_page_is_served(ask: Client) -> None:
    reply = ask("/")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/html")
