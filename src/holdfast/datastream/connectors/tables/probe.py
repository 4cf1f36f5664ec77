"""Whether files can be written below a table: found out before the first record."""

from __future__ import annotations

from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.datastream.connectors.tables.place import new_probe
from holdfast.filesystem import FileSystemError, cause_of
from holdfast.filesystem.probe import probe


def check_writable(base: str, table: str) -> None:
    """Write a file and delete it again.

    Args:
        base: where the table has its files.
        table: its name, for the message.

    Raises:
        TableError: when that is not possible.
    """
    system, path = new_probe(base)
    try:
        probe(system, path)
    except FileSystemError as error:
        raise TableError(
            f"cannot write to the {table}: {cause_of(error)}; let the job's user write there, and "
            "check its fs.* settings"
        ) from error
