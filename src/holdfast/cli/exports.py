"""Writes the rows of a state to a file for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import PurePosixPath
from typing import BinaryIO, Final, TextIO

import pyarrow.parquet as pq

from holdfast.cli.values import json_of, text_of
from holdfast.savepoint import StateData

#: writes rows, and returns their number
Export = Callable[[StateData, BinaryIO], int]


def _parquet(data: StateData, file: BinaryIO) -> int:
    rows = 0
    batches = data.to_batches()
    with pq.ParquetWriter(file, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _json_lines(data: StateData, file: BinaryIO) -> int:
    rows = 0
    with _lines(file) as lines:
        for row in data:
            lines.write(json.dumps(json_of(row), ensure_ascii=False) + "\n")
            rows += 1
    return rows


def _csv(data: StateData, file: BinaryIO) -> int:
    rows = 0
    with _lines(file) as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(data.column_names)
        for row in data:
            writer.writerow(["" if cell is None else text_of(cell) for cell in row.values()])
            rows += 1
    return rows


@contextmanager
def _lines(file: BinaryIO) -> Iterator[TextIO]:
    """Return a text stream on the file, which stays open."""
    lines = TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield lines
        lines.flush()
    finally:
        lines.detach()


FORMATS: Final[dict[str, Export]] = {"parquet": _parquet, "jsonl": _json_lines, "csv": _csv}
_SUFFIXES: Final = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


def format_of(path: str) -> str | None:
    """Return the format of a file by its name, if known."""
    return _SUFFIXES.get(PurePosixPath(path).suffix.lower())
