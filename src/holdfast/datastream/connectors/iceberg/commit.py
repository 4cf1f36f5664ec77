"""One commit of the sink: everything of a checkpoint, in one step of the catalog.

Each try does the following:

1. Load the table as it is now.
2. Look for the transaction in it. If it is there, an earlier try or another process committed it.
3. Stage the change on this state of the table. New files are written, and nobody sees them.
4. Commit, if the current snapshot is still the one of step 1. The catalog checks that.

Invariant: between step 2 and step 4 nobody else has committed. Consequence: the transaction is in
the table at most once, even if several processes commit it, or one does so repeatedly.

pyiceberg's own commit repeats steps 3 and 4 without step 2. So the sink does not use it.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.iceberg.history import TRANSACTION, Marked, is_committed
from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

#: pauses between tries, in seconds; each is varied, so that two jobs do not stay in step
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_TRIES: Final = 15
#: the catalog has not committed, because somebody else has
_REFUSED: Final = "CommitFailedException"
#: errors after which the next try may succeed, by the names of their classes; the outcome of the
#: failed one may be unknown, and step 2 of the next try finds out
_PASSING: Final = frozenset(
    {
        _REFUSED,
        "CommitStateUnknownException",
        "ServiceUnavailableError",
        "ServerError",
        "TooManyRequestsError",
        "ConnectionError",
        "OperationalError",
        "WaitingForLockException",
    }
)

_logger = get_logger(__name__)


class Change(ABC):
    """What a commit does to the table."""

    @abstractmethod
    def stage(self, transaction: Transaction, summary: Mapping[str, str]) -> None:
        """Add snapshots with this summary to a transaction on the current state of the table."""

    def undo(self) -> None:
        """Delete the files that the last ``stage`` wrote: they were not committed."""


def commit(address: TableAddress, table: Table, marked: Marked, change: Change) -> None:
    """Commit a change, unless the table has it.

    Raises:
        TableError: when that is not possible now. Nothing is lost: the transaction is
            still in the checkpoint, and the next attempt commits it.
    """
    failure: Exception | None = None
    staged: Transaction | None = None
    for pause in pauses():
        with address.errors("load the table"):
            table.refresh()
        committed = is_committed(address, table, marked)
        # NB: an answer that was lost may have been a yes, now or later; a later one is refused once
        # somebody has committed
        if (
            staged is not None
            and (committed or is_refused(failure))
            and delete_manifests(table, staged)
        ):
            change.undo()
        if committed:
            return
        staged = table.transaction()
        with address.errors("prepare a commit"):
            staged.set_properties({marked.last_key: marked.name})
            change.stage(staged, {TRANSACTION: marked.name, **marked.origin})
        try:
            commit_once(table, staged)
            return
        except Exception as error:
            failure = error
            if not will_pass(error):
                break
            _logger.info("%s: trying again in %.2f s: %s", address, pause, error)
            time.sleep(pause)
    raise _not_committed(address, marked, failure) from failure


def _not_committed(address: TableAddress, marked: Marked, failure: Exception | None) -> TableError:
    return TableError(
        f"{address}: could not commit the transaction {marked.name}: "
        f"{type(failure).__name__}: {failure}. Nothing is lost: the job goes on from its last "
        "checkpoint, which has the transaction. If others commit to the table all the time, "
        "take checkpoints less often"
    )


def commit_once(table: Table, staged: Transaction) -> None:
    """Do step 4."""
    from pyiceberg.table.update import AssertTableUUID

    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    table._do_commit(updates=staged._updates, requirements=(*staged._requirements, same_table))


def delete_manifests(table: Table, staged: Transaction) -> bool:
    """Delete the metadata that a try has written, unless the table has it; return whether."""
    producers = staged._snapshot_producers
    if any(table.snapshot_by_id(producer.snapshot_id) for producer in producers):
        return False
    for producer in producers:
        producer._clean_all_uncommitted()
    return True


def is_refused(error: Exception | None) -> bool:
    """Return whether the catalog has said no: the try will never be carried out."""
    return type(error).__name__ == _REFUSED


def will_pass(error: Exception) -> bool:
    """Return whether the next try may succeed."""
    return any(kind.__name__ in _PASSING for kind in type(error).__mro__)


def pauses() -> Iterator[float]:
    """Yield how long to wait after each try, in seconds."""
    pause = _FIRST_PAUSE
    for _ in range(_TRIES):
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, _LONGEST_PAUSE)
