"""The REST API and the web UI below Spark's own web UI, where proxies of clusters show them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.spark import web_ui
from tests.standalone import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(PATIENCE + 60)]

#: runs jobs, one after the other, and prints what clients of Spark's web UI get while each runs
PROGRAM = """
import http.client, json, logging, threading
from urllib.parse import urlsplit

from holdfast.common import Configuration
from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from pyspark.sql import SparkSession


class Idle(SourceFunction):
    def run(self, ctx):
        self.cancelled = threading.Event()
        ctx.collect(1)
        self.cancelled.wait()

    def cancel(self):
        self.cancelled.set()


def ask(path, method="GET", token=None):
    host = urlsplit(SparkSession.getActiveSession().sparkContext.uiWebUrl).netloc
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, headers=headers)
    with connection.getresponse() as answer:
        return answer.status, answer.read().decode()


def run(**settings):
    settings = {f"rest.{key.replace('_', '-')}": value for key, value in settings.items()}
    settings |= {"rest.port": "0", "spark.ui.port": "0", "holdfast.engine": "resident"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(1)
    env.add_source(Idle(), "idle").print()
    job = env.execute_async("orders")
    there = f"/holdfast/jobs/{job.get_job_id()}"
    answers = {
        "page": ask("/holdfast/"),
        "script": ask("/holdfast/main.js"),
        "jobs": ask("/holdfast/jobs/overview"),
        "wrong": ask("/holdfast/jobs/overview", token="wrong"),
        "right": ask("/holdfast/jobs/overview", token="secret"),
        "dots": ask("/holdfast/../holdfast/jobs/overview"),
        "cancel": ask(there, "PATCH"),
        "live": ask(f"{there}/live?events=1", token="secret"),
        "of Spark": ask("/jobs/"),
        "cancel, right": ask(there, "PATCH", token="secret"),
    }
    job.cancel().result()
    answers["ended"] = ask("/holdfast/jobs/overview")
    print(json.dumps(answers))


logging.basicConfig(level=logging.INFO)
run(spark_ui="read")
run(spark_ui="token", token="secret")
run()
"""


def test_spark_s_web_ui_shows_the_jobs_to_those_who_may_see_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_RUNTIME_DIR": str(tmp_path / "user")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    read, token, nobody = ({what: one[0] for what, one in each.items()} for each in answers)
    assert "<title>Holdfast</title>" in answers[0]["page"][1]
    assert '"RUNNING"' in answers[0]["jobs"][1]
    assert '"RUNNING"' in answers[1]["right"][1]
    # whoever opens Spark's web UI may read, although it is the user's own process that asks
    assert [read[what] for what in ("page", "script", "jobs")] == [200] * 3
    assert read["dots"] in (404, 502), "by the version of Spark"
    assert read["cancel"] == 403
    # no token is set there, so none opens anything
    assert (read["wrong"], read["right"], read["cancel, right"]) == (401, 401, 401)
    assert [token[what] for what in ("page", "script", "right", "live")] == [200] * 4
    assert [token[what] for what in ("jobs", "wrong", "cancel")] == [401] * 3
    assert token["cancel, right"] == 202
    # Spark redirects to its first page what it does not know
    assert [nobody["page"], *(each["ended"][0] for each in answers)] == [302] * 4
    assert {each["of Spark"][0] for each in answers} == {200}
    assert done.stderr.count("jobs are shown below Spark's web UI, too: http://") == 2


class Context:
    """Stands for a session and its context."""

    def __init__(self, page: str | None) -> None:
        self.uiWebUrl = page
        self.sparkContext = self


@pytest.mark.parametrize("taken", [False, True])
def test_where_it_cannot_be_shown_the_log_says_why(
    caplog: pytest.LogCaptureFixture, taken: bool
) -> None:
    session: Any = Context("http://h1:4040" if taken else None)
    if taken:
        assert web_ui._in_use.acquire(blocking=False)
    try:
        assert web_ui.show_in_spark(session, "http://127.0.0.1:1") is None
    finally:
        if taken:
            web_ui._in_use.release()
    (message,) = caplog.messages
    reason = "another job of this program" if taken else "it is turned off; set 'spark.ui.enabled'"
    assert message.startswith(
        f"jobs are not shown below Spark's web UI ('rest.spark-ui'): {reason}"
    )
