"""The session that a program gets which makes none itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from holdfast.spark.jvm import with_root

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
JOB = """
from holdfast.datastream import StreamExecutionEnvironment
from pyspark.sql import SparkSession

env = StreamExecutionEnvironment.get_execution_environment()
print(sorted(env.from_collection([1, 2, 3]).map(lambda n: n + 1).execute_and_collect()))
session = SparkSession.getActiveSession()
print(session.sparkContext.master, session.conf.get("spark.sql.session.timeZone"))
"""


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(JOB)
    own = {"PYSPARK_PYTHON": sys.executable, "HOLDFAST_RUNTIME_DIR": str(folder / "user")}
    return subprocess.run(
        [*command, "job.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        env=os.environ | own | variables,
    )


def test_it_has_the_master_and_the_settings_of_spark_submit(tmp_path: Path) -> None:
    settings = ("--master", "local[3]", "--conf", "spark.sql.session.timeZone=Asia/Tokyo")
    done = run(tmp_path, SUBMIT, *settings)
    assert done.stdout == "[2, 3, 4]\nlocal[3] Asia/Tokyo\n", done.stderr


def test_settings_of_the_user_come_before_those_of_holdfast(tmp_path: Path) -> None:
    program = tmp_path / "options.py"
    program.write_text(f"""{JOB}
system = session._jvm.java.lang.System
print(session.sparkContext.uiWebUrl)
print(system.getProperty("mine"), system.getProperty("log4j2.configurationFile"))
""")
    options = ("-D", "spark.driver.extraJavaOptions=-Dmine=7")
    page = ("-D", "spark.ui.enabled=true", "-D", "spark.ui.port=0")
    settings = (*options, *page, "--master", "local[1]")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *settings, str(program)],
        capture_output=True,
        text=True,
        timeout=800,
    )
    address, last = done.stdout.splitlines()[-2:]
    assert address.startswith("http://127.0.0.1:"), done.stderr
    assert last.startswith("7 file:///"), done.stderr
    assert last.endswith("/holdfast/spark/log4j2.properties"), "the log is quiet nevertheless"


def test_a_driver_with_little_memory_has_room_for_new_objects(tmp_path: Path) -> None:
    program = tmp_path / "room.py"
    program.write_text(f"""{JOB}
pools = session._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
print([pool.getUsage().getInit() >> 20 for pool in pools if "Eden" in pool.getName()])
""")
    # as in a container: the JVM derives the sizes of its heap from it
    done = run(tmp_path, sys.executable, str(program), JAVA_TOOL_OPTIONS="-XX:MaxRAM=2g")
    assert done.stdout.splitlines()[-1] == "[96]", done.stderr


class JavaError:
    def __init__(self, text: str, cause: JavaError | None = None) -> None:
        self.toString, self.getCause = lambda: text, lambda: cause


def test_the_first_cause_of_an_error_of_java_is_told() -> None:
    forbidden = JavaError("KubernetesClientException: pods is forbidden")
    error = JavaError("SparkException: no scheduler", JavaError("Invocation", forbidden))
    assert with_root(forbidden) == "KubernetesClientException: pods is forbidden"
    assert with_root(error) == (
        "SparkException: no scheduler, caused by KubernetesClientException: pods is forbidden"
    )


@pytest.mark.parametrize(
    ("master", "reason"),
    [
        ("local[0]", "Spark could not start on 'local[0]': org.apache.spark.SparkException: Asked"),
        ("moon:7077", "spark.master: 'moon:7077' is not a master of Spark; use local[4], spark://"),
    ],
)
def test_why_spark_cannot_start_is_told_in_a_line(tmp_path: Path, master: str, reason: str) -> None:
    done = run(tmp_path, sys.executable, "-m", "holdfast", "run", "--master", master)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert reason in last, done.stderr
    assert "Traceback" not in done.stderr
