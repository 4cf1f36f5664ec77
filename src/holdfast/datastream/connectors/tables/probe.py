"""Whether files can be written below a table: found out before the first record."""

from __future__ import annotations

import uuid

from holdfast.datastream.connectors.tables.committer import TableError
from holdfast.filesystem import FileSystemError, cause_of, file_system_of, join
from holdfast.filesystem.probe import probe


def check_writable(base: str, table: str) -> None:
    """Write a file and delete it again.

    Args:
        base: where the table has its files.
        table: its name, for the message.

    Raises:
        TableError: when that is not possible.
    """
    system, path = file_system_of(base)
    try:
        probe(system, join(path, "_holdfast", f"probe-{uuid.uuid4().hex}"))
    except FileSystemError as error:
        raise TableError(
            f"cannot write to the {table}: {cause_of(error)}; let the job's user write there, and "
            "check its fs.* settings"
        ) from error
