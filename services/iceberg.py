"""A REST catalog of Iceberg: the server that the Iceberg project tests its clients with."""

from __future__ import annotations

import os
from pathlib import Path

from services.artifacts import Artifact, fetched, jars_of_spark
from services.process import JavaProcess, free_port, listens

VERSION = "1.10.0"
ARTIFACTS = (
    Artifact("org.apache.iceberg", "iceberg-core", VERSION),
    Artifact("org.eclipse.jetty", "jetty-servlet", "11.0.26"),
    Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0"),
)
#: the server is in the jars of the tests
SERVER = (
    Artifact("org.apache.iceberg", "iceberg-core", VERSION, "tests"),
    Artifact("org.apache.iceberg", "iceberg-open-api", VERSION, "test-fixtures"),
)
MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


class IcebergCatalog:
    """One catalog with its database and its warehouse in a folder."""

    name = "iceberg"

    def __init__(self, folder: Path) -> None:
        """Find a port, start nothing yet.

        Raises:
            UnavailableError: when Iceberg's classes cannot be had.
        """
        classes = [*fetched(self.name, ARTIFACTS), *_server(), *jars_of_spark(["hadoop-client-"])]
        folder.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        self.warehouse = f"file://{folder}/warehouse"
        settings = {
            "CATALOG_REST_PORT": self._port,
            "CATALOG_WAREHOUSE": self.warehouse,
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        }
        self.process = JavaProcess(
            folder,
            ["-cp", os.pathsep.join(map(str, classes)), MAIN],
            lambda: listens(self._port),
            on=["env", *(f"{name}={value}" for name, value in settings.items())],
        )

    @property
    def address(self) -> str:
        """What clients call ``uri``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def processes(self) -> list[JavaProcess]:
        """The processes it consists of."""
        return [self.process]

    def start(self, *, outlives: bool = False) -> None:
        """Start, and wait until it answers."""
        self.process.start(outlives=outlives)

    def stop(self) -> None:
        """Shut it down in order."""
        self.process.stop()


def _server() -> list[Path]:
    return fetched("iceberg-server", SERVER, transitive=False)
