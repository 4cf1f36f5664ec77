"""A small HDFS for tests: Hadoop's own, one name node and one data node in a Java process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.hadoop import hadoop_jars
from services.process import JavaProcess, free_port


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of a running HDFS, whose files are in the folder.

    Raises:
        UnavailableError: when its classes cannot be had.
    """
    port, ready = free_port(), folder / "details.json"
    arguments = ["-cp", os.pathsep.join(map(str, hadoop_jars()))]
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
