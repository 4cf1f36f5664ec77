"""Programs that use Spark Connect get one sentence that says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.errors import JobDefinitionError
from holdfast.spark.session import _make_session, default_parallelism, get_session

ROOT = Path(__file__).parents[2]
SENTENCE = (
    "{}, and Holdfast runs in the process of Spark's driver: create a classic session, without "
    "SparkSession.builder.remote(), SPARK_REMOTE and 'spark.api.mode'='connect'"
)
PROGRAM = """
import sys

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import JobDefinitionError
from holdfast.spark.session import prepare_workers
from holdfast.savepoint.frames import number_of_parts
from pyspark.sql import SparkSession

session = eval(sys.argv[1]).getOrCreate()
frame = session.range(3)
assert frame.count() == 3
print(type(session).__module__)
env = StreamExecutionEnvironment.get_execution_environment()
env.from_dataframe(frame).print()
for use in (env.execute, lambda: prepare_workers(session), lambda: number_of_parts(frame, 8)):
    try:
        use()
    except JobDefinitionError as error:
        print(error)
session.stop()
"""


@pytest.mark.parametrize(
    ("settings", "variables", "found"),
    [
        ({"spark.remote": "sc://h1"}, {}, "'spark.remote' or SPARK_REMOTE requests"),
        ({}, {"SPARK_REMOTE": "sc://h1"}, "'spark.remote' or SPARK_REMOTE requests"),
        ({"spark.api.mode": "connect"}, {}, "'spark.api.mode' or SPARK_API_MODE requests"),
        ({}, {"SPARK_API_MODE": "Connect"}, "'spark.api.mode' or SPARK_API_MODE requests"),
    ],
)
def test_no_session_of_spark_connect_is_made(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    variables: dict[str, str],
    found: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sentence = SENTENCE.format(f"{found} a session of Spark Connect")
    with pytest.raises(JobDefinitionError, match=re.escape(sentence)):
        _make_session("job", settings, 0)


def test_a_program_that_uses_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # what PySpark itself looks at, and sets when it makes such a session
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    sentence = re.escape(SENTENCE.format("this program uses Spark Connect"))
    with pytest.raises(JobDefinitionError, match=sentence):
        get_session("job")
    with pytest.raises(JobDefinitionError, match=sentence):
        default_parallelism()


@pytest.mark.spark
@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("grpc") is None or find_spec("grpc_status") is None,
    reason="a session of Spark Connect needs the packages of pyspark[connect]; "
    "make test-matrix has them",
)
@pytest.mark.parametrize(
    "session",
    [
        "SparkSession.builder.remote('local[1]')",
        "SparkSession.builder.master('local[1]').config('spark.api.mode', 'connect')",
    ],
)
def test_a_real_session_of_spark_connect_is_refused(tmp_path: Path, session: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", session],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "pyspark.sql.connect.session",
        SENTENCE.format("this program uses Spark Connect"),
        *[SENTENCE.format("the session is one of Spark Connect")] * 2,
    ]
