"""Whether a table has more than the checkpoint that a job starts from.

A table cannot forget commits. If a job starts from an older checkpoint or savepoint, those that
came after it stay, and the job writes their rows again. So each checkpoint says how far the table
was, and each commit says which sink it is from: by an id that goes from checkpoint to checkpoint,
over restarts and other programs that continue from them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.datastream.connectors.tables.place import TablePlace

#: the key of that id in the history of a table
SINK: Final = "holdfast.sink"


class TableProgress(NamedTuple):
    """What a checkpoint says besides its transactions.

    Attributes:
        base: the address of the table.
        sink: the id of the sink in the program, which is the name of its hidden directory.
        lineage: the id of the sink in the history of the table; empty in savepoints of versions
            that had none.
        version: the number of the last change of the table that the sink had seen.
        last: the name of the last transaction that it had committed, which may be behind that.
    """

    base: str
    sink: str
    lineage: str = ""
    version: int = -1
    last: str = ""

    @property
    def place(self) -> TablePlace:
        """Return where the sink writes."""
        return TablePlace(self.base, self.sink)


class LaterCommits(NamedTuple):
    """Commits of the sink that are not in the checkpoint.

    Attributes:
        table: the name of the table.
        number: how many they are.
        remedy: what to do to get rid of them.
    """

    table: str
    number: int
    remedy: str
