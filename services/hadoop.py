"""A small Hadoop: HDFS and YARN from Hadoop's own jars, each part a process on a host of choice.

The jars have the version of those that Spark brings along.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from services.artifacts import Artifact, fetched, jars_of_spark, java

#: what the jar with Hadoop's servers was compiled with, and does not bring along
OTHERS = (
    *(
        Artifact("org.bouncycastle", f"{name}-jdk18on", "1.82")
        for name in ("bcpkix", "bcprov", "bcutil")
    ),
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
    Artifact("org.junit.platform", "junit-platform-commons", "1.11.4"),
    Artifact("org.opentest4j", "opentest4j", "1.3.0"),
    Artifact("org.mockito", "mockito-core", "4.11.0"),
)
FROM_SPARK = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-", "jcl-over-slf4j")
PARTS = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}

#: for one that is small, on a machine that is full
SETTINGS = {
    "dfs.replication": "1",
    "yarn.nodemanager.resource.memory-mb": "2048",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    # the application master of one job may take more than a tenth of all memory
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    # containers say how much memory they may take, and nobody looks
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
}


class Hadoop:
    """The settings of a cluster, and the commands that start its parts.

    Args:
        folder: for the settings; what clients call ``HADOOP_CONF_DIR``.
        host: the name of the host with the name node and the resource manager.
        data: for the files of each part, on its own host.
        settings: on top of those of a small one.
    """

    def __init__(
        self, folder: Path, host: str, data: str, settings: Mapping[str, str] | None = None
    ) -> None:
        """Write the settings, start nothing.

        Raises:
            UnavailableError: when Hadoop's classes cannot be had.
        """
        self._classes = os.pathsep.join(map(str, [folder, *hadoop_jars()]))
        self.host = host
        chosen = {
            "fs.defaultFS": f"hdfs://{host}:8020",
            "hadoop.tmp.dir": data,
            "dfs.namenode.http-address": f"{host}:9870",
            "yarn.resourcemanager.hostname": host,
            "yarn.nodemanager.log-dirs": f"{data}/logs",
            **SETTINGS,
            **(settings or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        # NB: a setting in an earlier file is overridden by the default in a later one
        for name in ("core", "hdfs", "yarn"):
            (folder / f"{name}-site.xml").write_text(site_xml(chosen))

    def command(self, part: str, *arguments: str) -> list[str]:
        """Return the command that starts one of the ``PARTS``."""
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        # the log says when a part is ready, on this level
        options += ["-Dorg.apache.logging.log4j.level=INFO", "-cp", self._classes]
        return [java(), *options, PARTS[part], *arguments]


def hadoop_jars() -> list[Path]:
    """Return the jars that Hadoop's servers need.

    Raises:
        UnavailableError: when they cannot be had.
    """
    jars = jars_of_spark(FROM_SPARK)
    (api,) = (jar for jar in jars if jar.name.startswith("hadoop-client-api"))
    version = api.stem.removeprefix("hadoop-client-api-")
    servers = Artifact("org.apache.hadoop", "hadoop-client-minicluster", version)
    return [*fetched("hadoop", [servers, *OTHERS], transitive=False), *jars]


def site_xml(settings: Mapping[str, str]) -> str:
    """Return settings as Hadoop's configuration files have them."""
    properties = "".join(
        f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
        for key, value in settings.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"
