"""`DeltaCommitter`: the files of a checkpoint as one version of a Delta table.

The name of a transaction is an application transaction of Delta: the token is the application, and
the number its version. The table keeps the last version of each application. A commit that meets a
newer version of the table checks what the others did; one with the same application is a conflict,
in delta-rs as in Spark. So two processes cannot both commit a transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from holdfast.datastream.connectors.delta.table import TableSettings, library
from holdfast.datastream.connectors.tables.committer import (
    TableCommitter,
    TableError,
    TableTransaction,
)
from holdfast.datastream.connectors.tables.later import SINK, LaterCommits, TableProgress
from holdfast.datastream.connectors.tables.merging import last_changes
from holdfast.datastream.connectors.tables.place import TablePlace
from holdfast.datastream.connectors.tables.written import DELETED, WrittenFile
from holdfast.datastream.functions import RuntimeContext
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

#: how often a commit is tried while others commit
_MOST_TRIES: Final = 20
#: clocks of machines differ by no more, in milliseconds
_CLOCKS: Final = 3_600_000
#: versions that are searched for commits after a checkpoint
_SEARCHED: Final = 1000
#: what the history says about a version that undoes others
_RESTORE: Final = "RESTORE"
#: the key under which a version has the name of its transaction
COMMITTED: Final = "holdfast.transaction"
#: the key under which a version that puts files together has the id of the sink
COMPACTION: Final = "holdfast.compaction"
_logger = get_logger(__name__)


class DeltaCommitter(TableCommitter):
    """Adds files to a Delta table, or merges changes into it."""

    not_carried = TableCommitter.not_carried | {"_settings", "_table_id", "_version"}
    _table_id = ""
    #: of the table, when it was loaded last
    _version = -1

    def __init__(self, place: TablePlace, settings: TableSettings) -> None:
        super().__init__(place, settings.compaction)
        self._settings = settings

    @property
    def settings(self) -> TableSettings:
        """Return what table the sink needs."""
        return self._settings

    @property
    def place(self) -> TablePlace:
        """Return where the sink writes."""
        return self._place

    def into(self, uri: str) -> DeltaCommitter:
        """Return a committer for a table at another path."""
        return DeltaCommitter(self._place._replace(base=uri), self._settings.at(uri))

    def open(self, runtime_context: RuntimeContext) -> None:
        """Check the table, and create it if there is none."""
        super().open(runtime_context)
        self._settings.ensure()
        table = self._load()
        self._table_id, self._version = str(table.metadata().id), table.version()

    def table_id(self) -> str:
        return self._table_id

    def table_version(self) -> int:
        return self._version

    def later_commits(self, since: TableProgress, own: Collection[str]) -> LaterCommits | None:
        table = self._load()
        searched = min(table.version() - since.version, _SEARCHED)
        if searched <= 0:
            return None
        commits = [
            version
            for version in _effective(table.history(searched))
            if version.get(SINK) == since.lineage and version["version"] > since.version
        ]
        later = [version["version"] for version in commits if version[COMMITTED] not in own]
        if not later:
            return None
        if table.version() - searched > since.version:
            remedy = (
                f"The checkpoint was taken at version {since.version}; find the version before "
                "them in DeltaTable(...).history()"
            )
        elif any(
            version["version"] > later[-1] for version in commits if version[COMMITTED] in own
        ):
            remedy = "Going back to an older version would lose rows of the checkpoint"
        else:
            remedy = (
                f"To undo them, stop the job, call DeltaTable(...).restore({later[-1] - 1}), and "
                "start it from the same checkpoint again"
            )
        return LaterCommits(f"its table '{self._place.base}'", len(later), remedy)

    def has_committed(self, transaction: TableTransaction) -> bool:
        return _has(self._checked(transaction), transaction)

    def commit_files(self, transaction: TableTransaction) -> None:
        change = self._merge if self._settings.key else self._append
        for _ in range(_MOST_TRIES):
            table = self._checked(transaction)
            if _has(table, transaction):
                return
            self._settings.check(table)
            failure = self._try(change, table, transaction)
            if failure is None:
                return
        raise TableError(
            f"{transaction!r} could not be committed in {_MOST_TRIES} tries, because others "
            f"changed the table each time: {failure}; it is kept in the checkpoint, and will be "
            "committed when the job restarts"
        ) from failure

    def _try(
        self,
        change: Callable[[DeltaTable, TableTransaction], None],
        table: DeltaTable,
        transaction: TableTransaction,
    ) -> Exception | None:
        """Commit; return the failure if somebody else has changed the table."""
        conflict: type[Exception] = library().exceptions.CommitFailedError
        try:
            change(table, transaction)
        except conflict as error:
            return error
        except Exception as error:
            if self.has_committed(transaction):
                return None  # it failed after the commit, as in writing a checkpoint of the log
            message = self._settings.address.failed("commit to", error)
            raise TableError(f"{message}. {transaction!r} is kept in the checkpoint") from error
        return None

    def _append(self, table: DeltaTable, transaction: TableTransaction) -> None:
        schema = pa.schema(table.schema().to_arrow())
        table.create_write_transaction(
            [_add_action(file, schema) for file in transaction.files],
            mode="append",
            schema=table.schema(),
            partition_by=list(self._settings.partition_by),
            commit_properties=_properties(transaction),
        )

    def _merge(self, table: DeltaTable, transaction: TableTransaction) -> None:
        names = self._settings.schema.names
        everything = {f"target.`{name}`": f"source.`{name}`" for name in names}
        (
            table.merge(
                last_changes(transaction, self._settings.key),
                " AND ".join(f"target.`{n}` = source.`{n}`" for n in self._settings.key),
                source_alias="source",
                target_alias="target",
                # NB: or the bounds of the keys are not used to leave files of the table out
                streamed_exec=False,
                commit_properties=_properties(transaction),
            )
            .when_matched_delete(f"source.{DELETED}")
            .when_matched_update(everything, f"NOT source.{DELETED}")
            .when_not_matched_insert(everything, f"NOT source.{DELETED}")
            .execute()
        )
        # NB: deletions of keys that are not there change nothing, and make no version
        if not _has(table, transaction):
            self._append(table, TableTransaction(**{**vars(transaction), "files": []}))

    def compact(self) -> None:
        """Let ``deltalake`` do it, which also looks whether others have changed the same files."""
        compaction = self._settings.compaction
        assert compaction is not None
        delta = library()
        # NB: one task at a time: it shares the machine with the job
        try:
            self._load().optimize.compact(
                target_size=compaction.target_bytes,
                max_concurrent_tasks=1,
                commit_properties=delta.CommitProperties(
                    custom_metadata={COMPACTION: self._place.sink}
                ),
            )
        except delta.exceptions.CommitFailedError as error:
            _logger.info(
                "'%s': files changed during the compaction; later: %s", self._place.base, error
            )

    def find_referred(self, paths: Collection[str], since: int) -> Collection[str]:
        """Look for the files in the table, and in all versions since they were begun."""
        wanted = set(paths)
        table = self._settings.address.load()
        if table is None:
            return wanted
        found = set(map(unquote, pa.table(table.get_add_actions()).column("path").to_pylist()))
        for entry in self._settings.address.log.since(since - _CLOCKS):
            found |= entry.paths
        return wanted & found

    def _load(self) -> DeltaTable:
        table = self._settings.address.load()
        if table is None:
            raise TableError(
                f"the Delta table '{self._place.base}' is gone: somebody has deleted it; what is "
                "not committed is kept in the checkpoint. Restore the table, or start without state"
            )
        return table

    def _checked(self, transaction: TableTransaction) -> DeltaTable:
        """Return the table if it is the one that the transaction was for."""
        table = self._load()
        found = str(table.metadata().id)
        if transaction.place.base != self._place.base:
            raise TableError(
                f"{transaction!r} of the checkpoint is for another table than the sink's, "
                f"'{self._place.base}'; start with the old address once, and stop with a savepoint"
            )
        if transaction.table != found:
            raise TableError(
                f"the Delta table '{self._place.base}' was replaced: {transaction!r} is for the "
                f"table with the id {transaction.table}, and this one has {found}. Nothing was "
                "committed; restore the old table, or start without state"
            )
        self._version = table.version()
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._place, self._settings)


def _application(transaction: TableTransaction) -> str:
    return f"holdfast-{transaction.token}"


def _has(table: DeltaTable, transaction: TableTransaction) -> bool:
    last = table.transaction_version(_application(transaction))
    return last is not None and last >= transaction.number


def _properties(transaction: TableTransaction) -> CommitProperties:
    delta = library()
    properties: CommitProperties = delta.CommitProperties(
        custom_metadata={COMMITTED: transaction.name, **transaction.origin},
        app_transactions=[delta.Transaction(_application(transaction), transaction.number)],
    )
    return properties


def _effective(history: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield versions, the last one first, without those that were undone later."""
    undone_from: int | None = None
    for version in history:
        if undone_from is not None and version["version"] > undone_from:
            continue
        undone_from = None
        if version.get("operation") != _RESTORE:
            yield version
            continue
        target = str((version.get("operationParameters") or {}).get("version"))
        if not target.isdigit():
            return  # to a time; what was undone is not known
        undone_from = int(target)


def _add_action(file: WrittenFile, schema: pa.Schema) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=file.partition,
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps(_statistics(file, schema)),
    )


def _statistics(file: WrittenFile, schema: pa.Schema) -> dict[str, Any]:
    known = {name: each for name, each in file.statistics.items() if name in schema.names}
    bounded = {
        name: each
        for name, each in known.items()
        if each.low is not None and not pa.types.is_decimal(schema.field(name).type)
    }
    return {
        "numRecords": file.rows,
        "nullCount": {name: each.nulls for name, each in known.items()},
        "minValues": {n: _bound(e.low, schema.field(n).type) for n, e in bounded.items()},
        "maxValues": {n: _bound(e.high, schema.field(n).type) for n, e in bounded.items()},
    }


def _bound(text: str | None, column: pa.DataType) -> Any:
    """Return a value for the statistics of Delta from its text."""
    assert text is not None
    if pa.types.is_integer(column):
        return int(text)
    if pa.types.is_timestamp(column):
        return text.replace(" ", "T") + ("Z" if column.tz else "")
    return text
