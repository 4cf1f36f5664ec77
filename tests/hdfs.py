"""A small HDFS for tests: Hadoop's own, one name node and one data node in a Java process.

Its classes come from Maven Central, in the version of those that Spark brings along, and are kept
in pytest's cache.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

MAVEN = "https://repo1.maven.org/maven2"
#: what the cluster was compiled with, and does not bring along
OTHERS = (
    "org/junit/jupiter/junit-jupiter-api/5.11.4",
    "org/junit/platform/junit-platform-commons/1.11.4",
    "org/opentest4j/opentest4j/1.3.0",
    "org/mockito/mockito-core/4.11.0",
)
NEEDED = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-", "jcl-over-slf4j")
#: in seconds, for a machine that is slow and busy
LONGEST = 120


class NoHdfsError(Exception):
    """There is none to be had, and why."""


@contextmanager
def running(folder: Path, cache: Path) -> Iterator[str]:
    """The address of a running HDFS, whose files are in the folder.

    Raises:
        NoHdfsError: when its classes cannot be had.
    """
    classes = _classes(cache)
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


def _classes(cache: Path) -> list[Path]:
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    jars = [jar for jar in spark if jar.name.startswith(NEEDED)]
    (api,) = (jar for jar in jars if jar.name.startswith("hadoop-client-api"))
    version = api.stem.removeprefix("hadoop-client-api-")
    cluster = f"org/apache/hadoop/hadoop-client-minicluster/{version}"
    return [*(_fetched(artifact, cache) for artifact in (cluster, *OTHERS)), *jars]


def _command(classes: list[Path], port: int, ready: Path) -> list[str]:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-cp", os.pathsep.join(map(str, classes))]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"]
    return [*command, "-httpport", str(port), "-writeDetails", str(ready)]


def _wait_for(ready: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LONGEST
    while not ready.exists() or not ready.read_text().endswith("}"):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def _fetched(artifact: str, cache: Path) -> Path:
    name, version = artifact.split("/")[-2:]
    jar = cache / f"{name}-{version}.jar"
    if not jar.exists():
        address = f"{MAVEN}/{artifact}/{jar.name}"
        try:
            data, digest = _get(address), _get(f"{address}.sha1").decode().split()[0]
        except OSError as error:
            raise NoHdfsError(f"there is no HDFS without {address}: {error}") from error
        assert hashlib.sha1(data).hexdigest() == digest, address
        draft = jar.with_suffix(".draft")
        draft.write_bytes(data)
        draft.rename(jar)
    return jar


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        data: bytes = answer.read()
    return data
