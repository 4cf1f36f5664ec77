"""HBase in its standalone mode, and its Thrift server, which is what Python clients talk to."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from services.artifacts import Artifact, fetched, jars_of_spark
from services.hadoop import site_xml
from services.process import JavaProcess, free_port, listens

VERSION = "2.6.1"
THIRD_PARTY = "4.1.9"
MODULES = (
    *("asyncfs", "client", "common", "hadoop-compat", "hadoop2-compat", "http", "logging"),
    *("metrics", "metrics-api", "procedure", "protocol", "protocol-shaded", "replication"),
    *("server", "thrift", "zookeeper"),
)
SHADED = (
    *("shaded-gson", "shaded-jetty", "shaded-miscellaneous", "shaded-netty", "shaded-protobuf"),
    "unsafe",
)
#: All that HBase loads when it runs. What it asks Maven for is three times as much, with a Hadoop
#: that is older than the Java here; the one that Spark brings along does as well.
ARTIFACTS = (
    *(Artifact("org.apache.hbase", f"hbase-{name}", VERSION) for name in MODULES),
    *(Artifact("org.apache.hbase.thirdparty", f"hbase-{name}", THIRD_PARTY) for name in SHADED),
    Artifact("org.apache.yetus", "audience-annotations", "0.13.0"),
    Artifact("org.apache.thrift", "libthrift", "0.14.1"),
    Artifact("org.apache.zookeeper", "zookeeper", "3.8.4"),
    Artifact("org.apache.zookeeper", "zookeeper-jute", "3.8.4"),
    Artifact("com.google.protobuf", "protobuf-java", "2.5.0"),
    Artifact("com.lmax", "disruptor", "3.4.4"),
    Artifact("io.dropwizard.metrics", "metrics-core", "3.2.6"),
    Artifact("io.opentelemetry", "opentelemetry-api", "1.15.0"),
    Artifact("io.opentelemetry", "opentelemetry-context", "1.15.0"),
    Artifact("io.opentelemetry", "opentelemetry-semconv", "1.15.0-alpha"),
)
FROM_SPARK = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "log4j-",
    "jcl-over-slf4j",
    "commons-lang3",
    "commons-codec",
    "commons-io",
    "javax.servlet-api",
    "snappy-java",
)
#: parts of Java that HBase looks into
OPENED = ("lang", "lang.reflect", "io", "nio", "net", "util")

#: for one that is alone, and small
SETTINGS = {
    "hbase.cluster.distributed": "false",
    "hbase.wal.provider": "filesystem",
    # NB: Hadoop's usual class for local files keeps what is written in memory, whatever is asked of
    # it; with this one HBase's log is on disk when a write returns, so that a kill loses nothing.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "hbase.unsafe.stream.capability.enforce": "false",
    "hbase.master.hostname": "127.0.0.1",
    "hbase.regionserver.hostname": "127.0.0.1",
    "hbase.master.info.port": "-1",
    "hbase.regionserver.info.port": "-1",
    "hbase.thrift.info.port": "-1",
    "hbase.zookeeper.quorum": "127.0.0.1",
    # how long a server that was killed is waited for, by the one that is started in its place; and
    # how long one may stand still, on a machine that is slow and busy, before it gives itself up
    "hbase.zookeeper.property.tickTime": "500",
    "zookeeper.session.timeout": "8000",
    "hbase.regionserver.msginterval": "200",
    "hbase.server.thread.wakefrequency": "1000",
    "hbase.master.wait.on.regionservers.interval": "200",
    "hbase.regionserver.handler.count": "8",
    "hbase.master.executor.openregion.threads": "2",
    # the Thrift server says in time that HBase is away
    "hbase.client.pause": "100",
    "hbase.client.retries.number": "6",
    "hbase.rpc.timeout": "3000",
    "hbase.client.operation.timeout": "5000",
    "hbase.client.meta.operation.timeout": "5000",
}
_INITIALIZED = b"Master has completed initialization"


class HBase:
    """HBase with its files in a folder; keeps its address and its data when started again.

    Master, region server and ZooKeeper are one process, the Thrift server is another.

    Args:
        folder: for its files; made if it is not there.
        settings: on top of those of a small one.
    """

    name = "hbase"

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        """Find ports, write the settings, start nothing yet.

        Raises:
            UnavailableError: when HBase's classes cannot be had.
        """
        self._port, zookeeper = free_port(), free_port()
        site = {
            **SETTINGS,
            "hbase.rootdir": (folder / "data").as_uri(),
            "hbase.tmp.dir": str(folder / "tmp"),
            "hbase.zookeeper.property.dataDir": str(folder / "zookeeper"),
            "hbase.zookeeper.property.clientPort": str(zookeeper),
            "hbase.master.port": str(free_port()),
            "hbase.regionserver.port": str(free_port()),
            **(settings or {}),
        }
        arguments = _java_arguments(folder)
        for name in ("server", "thrift"):
            (folder / name).mkdir(parents=True)
        (folder / "hbase-site.xml").write_text(site_xml(site))
        master = [*arguments, "org.apache.hadoop.hbase.master.HMaster", "start"]
        self._starts = 0
        #: the process that holds the data; while it is away, clients still reach the other one
        self.server = JavaProcess(folder / "server", master, self._is_initialized, heap="384m")
        thrift = [*arguments, "org.apache.hadoop.hbase.thrift.ThriftServer"]
        thrift += ["-b", "127.0.0.1", "-p", str(self._port), "start"]
        self.thrift = JavaProcess(folder / "thrift", thrift, lambda: listens(self._port))

    @property
    def address(self) -> str:
        """Where its Thrift server is."""
        return f"127.0.0.1:{self._port}"

    @property
    def host(self) -> str:
        """The host of the Thrift server."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port of the Thrift server."""
        return self._port

    @property
    def processes(self) -> list[JavaProcess]:
        """The processes it consists of."""
        return [self.server, self.thrift]

    def start(self, *, outlives: bool = False) -> None:
        """Start both processes, and wait until they answer."""
        with ThreadPoolExecutor(2) as pool:
            server = pool.submit(self.start_server, outlives=outlives)
            thrift = pool.submit(self.thrift.start, outlives=outlives)
        try:
            server.result()
            thrift.result()
        except BaseException:
            self.kill()
            raise

    def start_server(self, *, outlives: bool = False) -> None:
        """Start the process that holds the data, and wait until it can be written to."""
        self._starts = _count(self.server.log)
        self.server.start(outlives=outlives)

    def kill(self) -> None:
        """End both as ``kill -9`` does."""
        self.thrift.kill()
        self.server.kill()

    def _is_initialized(self) -> bool:
        return _count(self.server.log) > self._starts


def _java_arguments(folder: Path) -> list[str]:
    jars = [*fetched(HBase.name, ARTIFACTS, transitive=False), *jars_of_spark(FROM_SPARK)]
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    opened += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    exported = ["--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED"]
    # the log says when HBase is ready, on this level
    level = "-Dorg.apache.logging.log4j.level=INFO"
    class_path = os.pathsep.join(map(str, [folder, *jars]))
    return [*opened, *exported, level, "-cp", class_path]


def _count(log: Path) -> int:
    return log.read_bytes().count(_INITIALIZED) if log.exists() else 0
