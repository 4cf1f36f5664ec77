"""A small HDFS for tests: Hadoop's own, one name node and one data node in a Java process.

Its classes are fetched in the version of those that Spark brings along.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.artifacts import Artifact, fetched, spark_jars
from services.process import JavaProcess, free_port

#: what the cluster was compiled with, and does not bring along
OTHERS = (
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
    Artifact("org.junit.platform", "junit-platform-commons", "1.11.4"),
    Artifact("org.opentest4j", "opentest4j", "1.3.0"),
    Artifact("org.mockito", "mockito-core", "4.11.0"),
)
NEEDED = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-", "jcl-over-slf4j")


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of a running HDFS, whose files are in the folder.

    Raises:
        UnavailableError: when its classes cannot be had.
    """
    port, ready = free_port(), folder / "details.json"
    arguments = ["-cp", os.pathsep.join(map(str, _classes()))]
    arguments += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"]
    arguments += ["-httpport", str(port), "-writeDetails", str(ready)]
    process = JavaProcess(
        folder, arguments, lambda: ready.exists() and ready.read_text().endswith("}")
    )
    process.start()
    try:
        yield f"webhdfs://127.0.0.1:{port}"
    finally:
        process.kill()


def _classes() -> list[Path]:
    jars = [jar for jar in sorted(spark_jars().glob("*.jar")) if jar.name.startswith(NEEDED)]
    (api,) = (jar for jar in jars if jar.name.startswith("hadoop-client-api"))
    version = api.stem.removeprefix("hadoop-client-api-")
    cluster = Artifact("org.apache.hadoop", "hadoop-client-minicluster", version)
    return [*fetched("hdfs", [cluster, *OTHERS], transitive=False), *jars]
