"""The events in files, made once for each number of events, and read by every system.

CSV, since it is the one format that Holdfast, Flink's own package and DuckDB all read. A row has
the columns of all kinds, where a field stands in the same column for several kinds if it can; no
text has a comma or a quotation mark in it.

The events are dealt to several files, fifty by fifty, so that each file is in the order of time and
goes through the whole of it: one file per subtask that reads is what a topic with partitions would
be.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.nexmark.events import AUCTION, BID, PERSON
from benchmarks.nexmark.generator import EVENTS_PER_SECOND, SIDE_INPUT, Generator

__all__ = ["COLUMNS", "FIELDS", "NUMBERS", "DataSet", "event_files", "make", "side_input"]

#: The columns, and how many of them, the first ones, are whole numbers.
COLUMNS = (
    *("kind", "time", "id", "party", "price", "reserve", "expires", "category"),
    *("name", "text", "card", "city", "state", "extra"),
)
NUMBERS = 8

#: By kind, the columns that its fields are in.
FIELDS: dict[int, tuple[str, ...]] = {
    PERSON: ("kind", "time", "id", "name", "text", "card", "city", "state", "extra"),
    AUCTION: (
        *("kind", "time", "id", "party", "price", "reserve", "expires", "category"),
        *("name", "text", "extra"),
    ),
    BID: ("kind", "time", "id", "party", "price", "name", "text", "extra"),
}

#: How many events go to one file before the next has its turn: those of one person.
_GROUP = 50
_WRITE = 20_000


@dataclass(frozen=True)
class DataSet:
    """Which events, in how many files.

    Attributes:
        seed, disorder, rate: Those of the generator.
    """

    events: int
    files: int
    seed: int = 0
    disorder: int = 1
    rate: int = EVENTS_PER_SECOND

    def generator(self) -> Generator:
        """Makes the events."""
        return Generator(self.seed, self.disorder, self.rate)


def make(root: Path, data: DataSet) -> Path:
    """Write the files of a data set unless they are there, and return their directory.

    Args:
        root: Where the directories of all data sets are.
        data: What to write.
    """
    name = "-".join(f"{value}-{key}" for key, value in asdict(data).items())
    directory = root / name
    if directory.exists():
        return directory
    root.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=root))
    (draft / "events").mkdir()
    rows = "".join(f"{key},{key}\n" for key in range(SIDE_INPUT))
    side_input(draft).write_text(rows, "utf-8")
    shares = [(draft, data, number) for number in range(data.files)]
    if data.events <= _WRITE:
        for share in shares:
            _write(*share)
    else:
        with ProcessPoolExecutor() as pool:
            list(pool.map(_write, *zip(*shares, strict=True)))
    try:
        draft.rename(directory)
    except OSError:  # another process was faster
        shutil.rmtree(draft)
    return directory


def event_files(directory: Path) -> Sequence[Path]:
    """The files of the events."""
    return sorted((directory / "events").iterdir())


def side_input(directory: Path) -> Path:
    """Query 13's table, of a key and a value."""
    return directory / "side_input.csv"


def _write(directory: Path, data: DataSet, number: int) -> None:
    """Write one of the files."""
    generator = data.generator()
    with (directory / "events" / f"{number:03d}.csv").open("w", encoding="utf-8") as file:
        for first in range(0, data.events, _WRITE):
            last = min(first + _WRITE, data.events)
            made = enumerate(generator.events(first, last), first)
            file.writelines(
                _LINES[event[0]](event) for n, event in made if n // _GROUP % data.files == number
            )


def _line(kind: int) -> str:
    """The format of a row of a kind."""
    places = {column: place for place, column in enumerate(FIELDS[kind])}
    cells = (f"{{0[{places[column]}]}}" if column in places else "" for column in COLUMNS)
    return ",".join(cells) + "\n"


_LINES = {kind: _line(kind).format for kind in FIELDS}
