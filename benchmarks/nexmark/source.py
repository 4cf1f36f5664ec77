"""Reads the files of events into Holdfast: in each subtask its share of them, side by side.

Rows are parsed and turned into tuples by columns, with Arrow, many at a time: a row costs about
a microsecond, half of it in Arrow's CSV parser. In batches, rows are given as Arrow parses them,
and columns that nobody wants are not parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.nexmark.data import COLUMNS, FIELDS, NUMBERS, event_files
from benchmarks.nexmark.events import AUCTION, BID, PERSON, Event
from holdfast.datastream.columns.batch import Batch, BatchList
from holdfast.datastream.columns.types import BatchTypeInfo
from holdfast.datastream.connectors.base import Source, SourceReader

__all__ = ["EVENTS", "NexmarkSource"]

_TYPES = [pa.int64()] * NUMBERS + [pa.string()] * (len(COLUMNS) - NUMBERS)

#: The columns of batches of events.
EVENTS = pa.schema(list(zip(COLUMNS, _TYPES, strict=True)))

_READ = csv.ReadOptions(column_names=COLUMNS, use_threads=False, block_size=1 << 23)
_PARSE = csv.ParseOptions(quote_char=False, double_quote=False, escape_char=False)

#: Bytes that are parsed at once: as many as leave their events in the processor's cache.
_BYTES = 1 << 20
#: The same for batches, whose rows take a tenth of the memory of tuples.
_BATCH_BYTES = 1 << 22

#: How many events of a file are read before another one has its turn.
_TURN = 50

#: By kind: the columns that bids do not have, and what brings them and the others into order.
_OTHERS = {
    kind: (more, itemgetter(*((*FIELDS[BID], *more).index(field) for field in FIELDS[kind])))
    for kind in (PERSON, AUCTION)
    for more in [tuple(field for field in FIELDS[kind] if field not in FIELDS[BID])]
}

#: How far a file was read: so many events, to this byte, and so many rows of what follows there.
Place = tuple[int, int, int]


class NexmarkSource(Source):
    """The events of a data set.

    Args:
        directory: What `data.make` returned.
        endless: Go on waiting when everything was read, as a topic would.
        columns: Give batches with these columns of the events, instead of tuples.
    """

    def __init__(
        self, directory: Path, endless: bool = False, columns: Sequence[str] | None = None
    ) -> None:
        self._files = [str(path) for path in event_files(directory)]
        self._endless = endless
        self._columns = columns
        if columns is not None:
            self.batch_type = BatchTypeInfo(pa.schema([EVENTS.field(name) for name in columns]))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """A reader of every so-manieth file."""
        shares = self._deal([(file, (0, 0, 0)) for file in self._files], parallelism)
        return _Reader(shares[subtask], self._endless, self._columns)

    def redistribute(self, positions: Sequence[Any], parallelism: int) -> Sequence[Any]:
        """The files, as far as they were read, dealt anew."""
        places = sorted(each for position in positions for each in position.items())
        return [dict(share) for share in self._deal(places, parallelism)]

    @staticmethod
    def _deal(places: Sequence[Any], parallelism: int) -> list[Any]:
        return [dict(places[subtask::parallelism]) for subtask in range(parallelism)]


class _Reader(SourceReader):
    """Reads some files in turns, so that they are all at about the same time."""

    def __init__(
        self, places: dict[str, Place], endless: bool, columns: Sequence[str] | None
    ) -> None:
        self._places = places
        self._endless = endless
        self._columns = columns
        self._pieces: dict[str, _Piece] = {}

    def restore(self, position: Any) -> None:
        """Go to these places."""
        self._places = dict(position)
        self._pieces.clear()

    def read(self, limit: int) -> Iterator[Sequence[Any]]:
        """What is at hand of the file whose turn it is."""
        while limit > 0 and (file := self._next()) is not None:
            count, offset, row = self._places[file]
            piece = self._pieces[file]
            turn = min(limit, _TURN if len(self._places) > 1 else limit)
            events = piece.events[row : row + turn]
            limit -= len(events)
            count += len(events)
            row += len(events)
            done = row == len(piece.events)
            self._places[file] = (count, piece.end, 0) if done else (count, offset, row)
            yield events if self._columns is None else BatchList([Batch(events)])

    def position(self) -> Any:
        """How far each file was read."""
        return dict(self._places)

    @property
    def finished(self) -> bool:
        """Whether all files were read."""
        return not self._endless and self._next() is None

    def _next(self) -> str | None:
        """The file to go on with; its piece is at hand."""
        for file, (_, offset, _) in sorted(self._places.items(), key=lambda item: item[1]):
            piece = self._pieces.get(file)
            if piece is None or piece.start != offset:
                piece = None
                self._pieces.pop(file, None)  # its memory is for the next one
                piece = self._pieces[file] = _Piece(file, offset, self._columns)
            if len(piece.events):
                return file
        return None


class _Piece:
    """A part of a file: whole rows, from a byte on."""

    def __init__(self, file: str, start: int, columns: Sequence[str] | None) -> None:
        with open(file, "rb") as opened:
            opened.seek(start)
            data = opened.read(_BYTES if columns is None else _BATCH_BYTES)
        self.start = start
        self.end = start + data.rfind(b"\n") + 1
        rows = _rows(pa.py_buffer(data)[: self.end - start], columns)
        self.events: Any = _tuples(rows) if columns is None and len(rows) else rows


def _rows(data: pa.Buffer, columns: Sequence[str] | None) -> Any:
    """The rows of some whole lines, with all columns or some."""
    if not len(data):
        return ()
    types = dict(zip(COLUMNS, _TYPES, strict=True))
    convert = csv.ConvertOptions(
        column_types=types, include_columns=columns, null_values=[""], check_utf8=False
    )
    (rows,) = csv.read_csv(pa.BufferReader(data), _READ, _PARSE, convert).to_batches()
    return rows


def _tuples(rows: pa.RecordBatch) -> list[Event]:
    """The events of some rows.

    Most are bids, so all rows are taken for bids, and the few others then made of these, and of
    the columns that bids do not have.
    """
    events = list(zip(*(_values(rows.column(field)) for field in FIELDS[BID]), strict=True))
    kinds = rows.column("kind")
    for kind, (fields, in_order) in _OTHERS.items():
        places = pc.indices_nonzero(pc.equal(kinds, kind))
        more = zip(*(_values(rows.column(field).take(places)) for field in fields), strict=True)
        for place, fields_more in zip(places.to_numpy().tolist(), more, strict=True):
            events[place] = in_order(events[place] + fields_more)
    return events


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_integer(column.type):  # with gaps they would become floats
        column = column.fill_null(0)
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
