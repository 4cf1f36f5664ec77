"""Connects to a catalog of Iceberg through pyiceberg, which is loaded when a job needs it.

Storage is configured once: Hadoop's settings of the job (``fs.s3a.endpoint``, …) are translated to
those of pyiceberg. Properties of the catalog override them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.filesystem import configured
from holdfast.filesystem.options import s3_arguments

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_WAREHOUSE: Final = "warehouse"
_S3_SCHEMES: Final = ("s3", "s3a", "s3n")
#: pyiceberg's names for the arguments of ``pyarrow.fs.S3FileSystem``
_S3_NAMES: Final = {
    "access_key": "s3.access-key-id",
    "secret_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "force_virtual_addressing": "s3.force-virtual-addressing",
}
#: what to do about an error of pyiceberg or of a package below it, by the name of its class; those
#: packages need not be installed
_REMEDIES: Final = {
    "UnauthorizedError": "check the credential or token among the catalog's properties",
    "ForbiddenError": "check what this user may do in the catalog",
    "OAuthError": "check the credential among the catalog's properties",
    "OperationalError": "check that the database runs, and the uri of the catalog",
    "ArgumentError": "check the uri of the catalog",
    "NoSuchModuleError": "check the uri of the catalog, and install the database's driver",
    "ConnectionError": "check that the catalog runs, and its uri",
    "NotInstalledError": "install the extra of pyiceberg that this type of catalog needs",
    "NoSuchNamespaceError": "create the namespace in the catalog, or correct its name",
}
#: what reads and writes tables on HDFS, by scheme
_ON_HDFS: Final = {
    scheme: ["holdfast.datastream.connectors.iceberg.hdfs_io.HdfsFiles"]
    for scheme in ("hdfs", "viewfs")
}
_NO_WAREHOUSE: Final = "No default path is set"
_ANY_REMEDY: Final = "check the catalog's properties and the storage settings of the job"


def library() -> ModuleType:
    """Return the module ``pyiceberg.catalog``.

    Raises:
        JobDefinitionError: when it is not installed.
    """
    try:
        import pyiceberg.catalog
        import pyiceberg.io
    except ImportError as error:
        raise JobDefinitionError(
            "jobs that read or write Iceberg tables need the package pyiceberg, which is not "
            f"installed ({error}): pip install 'holdfast[iceberg]'"
        ) from error
    # NB: by scheme, because a catalog may name any place as that of a table
    pyiceberg.io.SCHEMA_TO_FILE_IO.update(_ON_HDFS)
    return pyiceberg.catalog


@dataclass(frozen=True)
class TableAddress:
    """Where a table is: the catalog, and the table's name in it.

    Attributes:
        catalog: the name of the catalog.
        properties: how to reach it, under pyiceberg's names.
        table: ``namespace.name``.
    """

    catalog: str
    properties: Mapping[str, str] = field(repr=False)
    table: str

    def __str__(self) -> str:
        return f"Iceberg table '{self.table}' of the catalog '{self.catalog}'"

    @property
    def namespace(self) -> str:
        """Return the table's namespace."""
        return self.table.rpartition(".")[0]

    def connect(self) -> Catalog:
        """Connect to the catalog.

        Raises:
            TableError: when that is not possible.
        """
        catalogs = library()
        storage = file_io_properties(configured(), self.properties.get(_WAREHOUSE, ""))
        with self.errors("connect to the catalog"):
            catalog: Catalog = catalogs.load_catalog(self.catalog, **{**storage, **self.properties})
        return catalog

    def load(self) -> Table:
        """Load the table as it is now.

        Raises:
            TableError: when it does not exist, or the catalog cannot be reached.
        """
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self.connect()
        with self.errors("load the table"):
            try:
                return catalog.load_table(self.table)
            except NoSuchTableError:
                there = ", ".join(self._tables(catalog)) or "none"
        message = (
            f"{self} does not exist; tables of that namespace are: {there}; call create_if_absent, "
            "or correct its name"
        )
        raise TableError(message)

    def create_like(self, other: TableAddress) -> None:
        """Create the table with the columns and partitions of another one, if that exists.

        Raises:
            TableError: when that is not possible.
        """
        catalog = self.connect()
        with self.errors("create the table"):
            if not catalog.table_exists(other.table):
                return
            like = catalog.load_table(other.table)
            catalog.create_table_if_not_exists(
                self.table,
                like.schema(),
                partition_spec=like.spec(),
                properties={"format-version": str(like.format_version)},
            )

    def _tables(self, catalog: Catalog) -> list[str]:
        return sorted(".".join(name) for name in catalog.list_tables(self.namespace))[:20]

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Turn any error into one that names the table, the action and what to do."""
        try:
            yield
        except HoldfastError:
            raise
        except Exception as error:
            kinds = (kind.__name__ for kind in type(error).__mro__)
            remedy = next((_REMEDIES[kind] for kind in kinds if kind in _REMEDIES), _ANY_REMEDY)
            if _NO_WAREHOUSE in str(error):
                remedy = "add 'warehouse' to the catalog's properties: where new tables are"
            raise TableError(f"{self}: cannot {action}: {_cause_of(error)}; {remedy}") from error


def check_address(
    what: str, catalog: tuple[str, Mapping[str, str]] | None, table: str
) -> TableAddress:
    """Return the address of a table if it is complete.

    Raises:
        ValueError: when the catalog or the table is missing.
    """
    if catalog is None:
        message = f"an {what} needs to know where the catalog is: call set_catalog"
        raise ValueError(message)
    if not all(table.split(".")) or "." not in table:
        message = f"an {what} needs the name of a table: set_table('namespace.name'); got {table!r}"
        raise ValueError(message)
    return TableAddress(*catalog, table)


def file_io_properties(options: Mapping[str, str], location: str) -> dict[str, str]:
    """Return pyiceberg's properties of S3 for Hadoop's settings.

    Settings of one bucket count if ``location`` is in it.

    >>> file_io_properties({"fs.s3a.endpoint": "http://minio:9000"}, "s3://bucket/warehouse")
    {'s3.endpoint': 'http://minio:9000'}
    """
    split = urlsplit(location)
    bucket = split.netloc if split.scheme in _S3_SCHEMES else ""
    arguments = s3_arguments(options, bucket)
    named = {
        name: str(arguments[argument]).lower()
        if argument.startswith("force")
        else arguments[argument]
        for argument, name in _S3_NAMES.items()
        if argument in arguments
    }
    if "endpoint_override" in arguments:
        named = {
            "s3.endpoint": f"{arguments['scheme']}://{arguments['endpoint_override']}",
            **named,
        }
    return named


def _cause_of(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else '(no message)'}"
