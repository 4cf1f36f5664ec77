"""A small HDFS for tests: Hadoop's own, one name node and one data node in a Java process.

Its classes come from Maven Central, in the version of those that Spark brings along.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

#: organisation, name, version
Artifact = tuple[str, str, str]

#: what the cluster was compiled with, and does not bring along
OTHERS = (
    ("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
    ("org.junit.platform", "junit-platform-commons", "1.11.4"),
    ("org.opentest4j", "opentest4j", "1.3.0"),
    ("org.mockito", "mockito-core", "4.11.0"),
)
NEEDED = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-", "jcl-over-slf4j")
#: in seconds, for a machine that is slow and busy
LONGEST = 120


class NoHdfsError(Exception):
    """There is none to be had, and why."""


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of a running HDFS, whose files are in the folder.

    Raises:
        NoHdfsError: when its classes cannot be had.
    """
    classes = _classes(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ready = folder / "details.json"
    with (folder / "log").open("wb") as log:
        command = _command(classes, port, ready)
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _wait_for(ready, process, folder / "log")
            yield f"webhdfs://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _classes(folder: Path) -> list[Path]:
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    jars = [jar for jar in spark if jar.name.startswith(NEEDED)]
    (api,) = (jar for jar in jars if jar.name.startswith("hadoop-client-api"))
    version = api.stem.removeprefix("hadoop-client-api-")
    cluster = ("org.apache.hadoop", "hadoop-client-minicluster", version)
    return [*_fetched([cluster, *OTHERS], folder), *jars]


def _command(classes: list[Path], port: int, ready: Path) -> list[str]:
    command = [_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-cp", os.pathsep.join(map(str, classes))]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"]
    return [*command, "-httpport", str(port), "-writeDetails", str(ready)]


def _wait_for(ready: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LONGEST
    while not ready.exists() or not ready.read_text().endswith("}"):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def _fetched(artifacts: Sequence[Artifact], folder: Path) -> list[Path]:
    """The jars of artifacts, through the client for such that Spark brings along."""
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="default->master"/>'
        for org, name, version in artifacts
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="tests" module="hdfs"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    pattern = str(folder / "[artifact]-[revision].[ext]")
    command = [_java(), "-jar", str(client), "-ivy", str(module), "-retrieve", pattern]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    jars = [folder / f"{name}-{version}.jar" for _, name, version in artifacts]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        raise NoHdfsError(f"there is no HDFS without {', '.join(missing)}: {run.stdout[-500:]}")
    return jars


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"
