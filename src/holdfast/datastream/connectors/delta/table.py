"""Opens, creates and checks Delta tables, through `deltalake`, which is loaded when needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.datastream.connectors.delta.log import DeltaLog
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.connectors.tables.compacting import TableCompaction
from holdfast.datastream.connectors.tables.formats import DELTA_LOG
from holdfast.datastream.connectors.tables.probe import check_writable
from holdfast.errors import JobDefinitionError
from holdfast.filesystem import (
    check_scheme,
    configured,
    file_system_of,
)
from holdfast.filesystem.options import s3_arguments
from holdfast.tracebacks import without_java_stack

if TYPE_CHECKING:
    from deltalake import DeltaTable

_NOT_REACHED: Final = ("webhdfs", "swebhdfs", "viewfs")
#: features of tables for which a data file must be written differently than here
_UNSUPPORTED: Final = frozenset(
    {
        *("columnMapping", "checkConstraints", "generatedColumns", "identityColumns"),
        *("rowTracking", "icebergCompatV1", "icebergCompatV2", "variantType"),
        *("variantType-preview", "typeWidening", "clustering", "catalogManaged"),
    }
)
_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m")
_CONSTRAINT: Final = "delta.constraints."
_S3_NAMES: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
}


def library() -> Any:
    """Return the module ``deltalake``.

    Raises:
        JobDefinitionError: when it is not installed.
    """
    try:
        import deltalake
    except ImportError as error:
        message = "Delta tables need the package deltalake: pip install 'holdfast[delta]'"
        raise JobDefinitionError(message) from error
    return deltalake


def check_address(uri: str) -> str:
    """Return the address of a table, a local one as an absolute path.

    Raises:
        JobDefinitionError: when Delta tables cannot be there.
    """
    scheme = check_scheme(uri)
    if scheme in _NOT_REACHED:
        message = (
            f"Delta tables cannot be reached over {scheme}://, got '{uri}'; use hdfs://, s3a://, "
            "gs://, abfss:// or a path"
        )
        raise JobDefinitionError(message)
    return file_system_of(uri)[1] if scheme == "file" else uri


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns with the types that Delta has for them.

    Raises:
        JobDefinitionError: when it has none.
    """
    delta = library()
    try:
        return pa.schema(delta.Schema.from_arrow(schema).to_arrow())
    except Exception as error:
        message = f"a Delta table cannot have these columns: {error}; got {schema}"
        raise JobDefinitionError(message) from error


@dataclass(frozen=True)
class DeltaAddress:
    """Where a table is, and how it is reached.

    Attributes:
        uri: a path or an address.
        storage_options: options of ``deltalake`` that are added to those of the job's settings.
    """

    uri: str
    # NB: there may be credentials in it, which must not be printed
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def options(self) -> dict[str, str]:
        """Return all options: Hadoop's settings of this process, and the given ones."""
        scheme = check_scheme(self.uri)
        if scheme == "hdfs":
            file_system_of(self.uri)  # tells in one line what is wrong with the set-up
            return {**configured(), **self.storage_options}
        if scheme not in ("s3", "s3a"):
            return dict(self.storage_options)
        bucket = self.uri.split("://", 1)[1].split("/", 1)[0]
        return _s3_options(s3_arguments(configured(), bucket)) | dict(self.storage_options)

    def load(self, version: int | None = None) -> DeltaTable | None:
        """Return the table in a version, the last one by default; None if there is no table.

        Raises:
            TableError: when it cannot be read.
        """
        delta = library()
        try:
            table: DeltaTable = delta.DeltaTable(
                self._uri, version=version, storage_options=self.options()
            )
        except delta.exceptions.TableNotFoundError:
            return None
        except Exception as error:
            raise TableError(self.failed("read", error)) from error
        return table

    def create(self, schema: pa.Schema, partition_by: tuple[str, ...], **given: Any) -> None:
        """Create the table, unless another process has just done so.

        Raises:
            TableError: when that is not possible.
        """
        delta = library()
        try:
            delta.DeltaTable.create(
                self._uri,
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=self.options(),
                # NB: or one who finds the first version taken makes the second one, with another
                # id of the table, and what was begun on the first one is refused
                commit_properties=delta.CommitProperties(max_commit_retries=0),
                **given,
            )
        except Exception as error:
            if self.load() is None:
                raise TableError(self.failed("create", error)) from error

    def failed(self, action: str, error: Exception) -> str:
        """Return the message for a failure."""
        # NB: messages of delta-rs may be trees of several lines, in colours, and those of HDFS have
        # the stack of the name node
        cause = " ".join(without_java_stack(_COLOUR.sub("", str(error))).split())
        return (
            f"cannot {action} the Delta table '{self.uri}': {cause}; check that the address is "
            "right, that this job may read and write there, and its fs.* settings"
        )

    @property
    def log(self) -> DeltaLog:
        """Return the log of the table."""
        return DeltaLog(self.uri)

    @property
    def _uri(self) -> str:
        return self.uri.replace("s3a://", "s3://", 1)


def _s3_options(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return options of ``deltalake`` for the arguments of pyarrow's S3 file system."""
    options = {ours: arguments[name] for name, ours in _S3_NAMES.items() if name in arguments}
    if "endpoint_override" in arguments:
        scheme = arguments["scheme"]
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{arguments['endpoint_override']}"
        options["AWS_ALLOW_HTTP"] = "true" if scheme == "http" else "false"
        options.setdefault("AWS_REGION", "us-east-1")
    if arguments.get("force_virtual_addressing"):
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    return options


@dataclass(frozen=True)
class TableSettings:
    """The table that a sink needs.

    Attributes:
        adds_columns: whether columns that the table lacks are added to it.
        properties: of a table that is created.
        compaction: when small files are put together; None for never.
    """

    address: DeltaAddress
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    adds_columns: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    compaction: TableCompaction | None = None

    def at(self, uri: str) -> TableSettings:
        """Return the same for a table at another path."""
        return replace(self, address=DeltaAddress(uri))

    def ensure(self) -> None:
        """Create the table if there is none, and check that the sink can write to it.

        Raises:
            TableError: when it cannot.
        """
        address = self.address
        table = address.load()
        if table is None:
            self._check_empty()
            given = {"configuration": dict(self.properties)} if self.properties else {}
            address.create(self.schema, self.partition_by, **given)
            table = address.load()
            if table is None:
                raise TableError(f"the Delta table '{address.uri}' was created, and is gone again")
        check_writable(address.uri, f"Delta table '{address.uri}'")
        self.check(table)

    def ensure_exists(self) -> None:
        """Do the same, but do not check a table that exists: another subtask does."""
        if not self.address.log.exists():
            self.ensure()

    def check(self, table: DeltaTable) -> None:
        """Check that the sink can write to a table; add columns to it, if the sink may.

        Raises:
            TableError: when it cannot.
        """
        self._check_features(table)
        found = tuple(table.metadata().partition_columns)
        if found != self.partition_by:
            raise TableError(
                f"the Delta table '{self.address.uri}' is partitioned by {_listed(found)}, and the "
                f"sink by {_listed(self.partition_by)}; change partition_by of the sink, or use "
                "another table"
            )
        self._check_columns(table)

    def _check_features(self, table: DeltaTable) -> None:
        name, configuration = self.address.uri, table.metadata().configuration
        features = _UNSUPPORTED.intersection(table.protocol().writer_features or ())
        constraints = [key for key in configuration if key.startswith(_CONSTRAINT)]
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            features |= {"columnMapping"}
        if features or constraints:
            raise TableError(
                f"the Delta table '{name}' has {_listed(sorted([*features, *constraints]))}, which "
                "the sink cannot write; write to a table without it"
            )
        if self.key and configuration.get("delta.appendOnly", "").lower() == "true":
            raise TableError(
                f"the Delta table '{name}' only takes appends (delta.appendOnly), and the sink has "
                f"a key, {_listed(self.key)}: change the property, or remove the key"
            )

    def _check_columns(self, table: DeltaTable) -> None:
        there = pa.schema(table.schema().to_arrow())
        missing = [each for each in self.schema if each.name not in there.names]
        if missing and not self.adds_columns:
            raise TableError(
                f"the Delta table '{self.address.uri}' has no column "
                f"{_listed([each.name for each in missing])}, and the sink writes it; let the sink "
                "add columns (SchemaEvolution.ADD_COLUMNS), or leave it out"
            )
        self._check_types(there)
        if missing:
            self._add_columns(table, missing)

    def _check_types(self, there: pa.Schema) -> None:
        wanted = {each.name: each for each in self.schema}
        for column in there:
            ours = wanted.get(column.name)
            if ours is None:
                problem = None if column.nullable else "cannot be null, and the sink lacks it"
            elif ours.type != column.type:
                problem = f"is {column.type}, and the sink writes {ours.type}"
            elif ours.nullable and not column.nullable and ours.name not in self.key:
                problem = "cannot be null, and the sink's column can be"
            else:
                problem = None
            if problem:
                raise TableError(
                    f"column '{column.name}' of the Delta table '{self.address.uri}' {problem}; "
                    "change the type of the sink, or use another table"
                )

    def _add_columns(self, table: DeltaTable, missing: list[pa.Field]) -> None:
        delta = library()
        fields = delta.Schema.from_arrow(
            pa.schema([each.with_nullable(True) for each in missing])
        ).fields
        try:
            table.alter.add_columns(fields)
        except Exception as error:
            found = self.address.load()
            there = pa.schema([]) if found is None else pa.schema(found.schema().to_arrow())
            if any(each.name not in there.names for each in missing):
                raise TableError(self.address.failed("add columns to", error)) from error
            self._check_types(there)  # another process has just added them

    def _check_empty(self) -> None:
        """Raise if there is something else than a Delta table."""
        system, path = file_system_of(self.address.uri)
        names = [status.name for status in system.list_directory(path)]
        if not names or DELTA_LOG in names:
            return
        kind = "an Iceberg table" if "metadata" in names else f"'{names[0]}'"
        raise TableError(
            f"'{self.address.uri}' is not a Delta table, and there is {kind} in it; name another "
            "directory, or convert it (deltalake.convert_to_deltalake)"
        )


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names) or "nothing"
