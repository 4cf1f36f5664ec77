"""A small HDFS for tests: Hadoop's own, one name node and two data nodes in a Java process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from services.hadoop import hadoop_jars
from services.process import JavaProcess, free_port


class Hdfs(NamedTuple):
    """The addresses of one HDFS: by its own protocol, and over HTTP."""

    rpc: str
    http: str


@contextmanager
def running(folder: Path) -> Iterator[Hdfs]:
    """The addresses of a running HDFS, whose files are in the folder.

    Raises:
        UnavailableError: when its classes cannot be had.
    """
    rpc, http, ready = free_port(), free_port(), folder / "details.json"
    arguments = ["-cp", os.pathsep.join(map(str, hadoop_jars()))]
    # NB: with one data node, the name node hears of a block after the client, which then waits for
    # half a second before it asks again whether the file is closed
    arguments += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "2", "-format"]
    arguments += ["-nnport", str(rpc), "-httpport", str(http), "-writeDetails", str(ready)]
    process = JavaProcess(
        folder, arguments, lambda: ready.exists() and ready.read_text().endswith("}")
    )
    process.start()
    try:
        yield Hdfs(f"hdfs://127.0.0.1:{rpc}", f"webhdfs://127.0.0.1:{http}")
    finally:
        process.kill()
