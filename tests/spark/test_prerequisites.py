"""What Spark lacks is one error that names it, before Spark is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError, JobExecutionError
from holdfast.spark.prerequisites import check_java, check_master, check_resources


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A directory in which Java is installed, as far as anybody looks."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    return program.parent.parent


def test_java_home_goes_first(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(java))
    check_java()
    monkeypatch.setenv("PATH", str(java / "bin"))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JobExecutionError, match="JAVA_HOME is '/nowhere', which has no bin/java; "):
        check_java()


def test_java_on_the_path(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java / "bin"))
    check_java()
    monkeypatch.setenv("PATH", str(java))
    with pytest.raises(JobExecutionError, match="Java 17 or newer, and there is none on the PATH"):
        check_java()


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[4]", "local[*]", "local[2,4]", "local[*, 4]", "local-cluster[2,1,1024]"),
        *("yarn", "k8s://https://host:443"),
    ],
)
def test_masters_that_are_not_asked(master: str) -> None:
    check_master(master)


def test_memory_and_cores_that_spark_can_read() -> None:
    check_resources({"spark.executor.memory": "4g", "spark.driver.memory": "512MB"})
    check_resources({"spark.executor.cores": "2", "spark.executor.memory": " 1024 ", "a.b": "abc"})


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("spark.executor.memory", "abc", "is not a size of memory; use a number and a unit"),
        ("spark.driver.memory", "1.5g", "is not a size of memory"),
        ("spark.executor.cores", "two", "is not a number; use one such as 2"),
    ],
)
def test_memory_and_cores_that_spark_cannot_read(key: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}: '{value}' {problem}"):
        check_resources({key: value})


@pytest.mark.parametrize("master", ["", "foo://x", "local[x]", "localhost:7077", "spark:host"])
def test_what_is_no_master(master: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a master of Spark; use local"):
        check_master(master)


def test_a_standalone_master_must_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        check_master(f"spark://{host}:{port}")
        # one of several is enough
        check_master(f"spark://127.0.0.1:1,{host}:{port}")


def test_a_master_that_does_not_answer() -> None:
    with pytest.raises(JobExecutionError, match=r"127.0.0.1:1: Connection refused\); check the"):
        check_master("spark://127.0.0.1:1")
    with pytest.raises(JobExecutionError, match=r"'spark://host' cannot be reached \(host: expec"):
        check_master("spark://host")
