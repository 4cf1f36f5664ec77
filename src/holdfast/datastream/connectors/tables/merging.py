"""The changes of a transaction as one table: the last change of each key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from holdfast.common.plain_names import plain_path
from holdfast.datastream.connectors.tables.committer import TableTransaction
from holdfast.datastream.connectors.tables.written import WrittenFile
from holdfast.filesystem import join

_POSITION: Final = "_holdfast_position"


def last_changes(transaction: TableTransaction, key: Sequence[str]) -> pa.Table:
    """Return the last change of each key, with the column `DELETED`.

    All changes of a key are in files of one writer, in their order.
    """
    files = sorted(transaction.files, key=lambda file: file.writer)
    return pa.concat_tables(
        [
            last_of_each(pa.concat_tables([_read(transaction, file) for file in written]), key)
            for _, written in groupby(files, key=lambda file: file.writer)
        ]
    )


def _read(transaction: TableTransaction, file: WrittenFile) -> pa.Table:
    system, base, _ = transaction.place.resolve()
    path = join(base, plain_path(file.path))
    with system.errors("read", path), system.open_input(path) as stream:
        return parquet.ParquetFile(stream).read()


def last_of_each(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key."""
    numbered = changes.select(list(key)).append_column(_POSITION, pa.array(np.arange(len(changes))))
    last = numbered.group_by(list(key)).aggregate([(_POSITION, "max")])
    return changes.take(last.column(f"{_POSITION}_max"))
