"""Reads what the sinks of a run hold."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.datastream.connectors.delta import DeltaSource
from holdfast.datastream.connectors.hbase.client import HBaseClient
from holdfast.datastream.connectors.hbase.options import HBaseOptions
from holdfast.datastream.connectors.iceberg.catalog import TableAddress
from holdfast.datastream.connectors.kafka.client import KafkaMetadata, library, new_consumer
from holdfast.torture.comparing import Guarantee, SinkContents, canonical
from holdfast.torture.order import Order, SinkPlace, read_notes
from holdfast.torture.redirecting import MARK

__all__ = ["ContentsReader", "read_contents"]

#: given by users: returns records, or values by key, by the name of what holds them
ContentsReader = Callable[[Path], Mapping[str, Iterable[Any] | Mapping[Any, Any]]]

_OUTPUT: Final = "output"
_LOG: Final = ".log"
#: a line that a print sink of the job wrote: the sink, and the record
_LINE: Final = re.compile(rf"{MARK}([^{MARK}]+){MARK}[^>]*> (.*)")
_SECONDS: Final = 20.0


def read_contents(
    order: Order, own: ContentsReader | None = None, only_local: bool = False
) -> dict[str, SinkContents]:
    """Return what every sink of a run holds, by an id that is the same in all runs.

    ``own``: reads what only the user knows how to read. ``only_local``: skip what is not a file.
    """
    places = [place for note in read_notes(order.path) for place in note.sinks]
    found: dict[str, SinkContents] = {}
    for place in places:
        if only_local and place.kind in ("kafka", "hbase"):
            continue
        found[place.id] = _read(place, order)
    taken = [Path(place.place["path"]) for place in places if "path" in place.place]
    if own is None:
        found.update(_read_output(order.output, taken))
    elif not only_local:
        found.update(_given(own(order.output)))
    return found


def _read(place: SinkPlace, order: Order) -> SinkContents:
    read = _READERS.get(place.kind)
    if read is None:
        return SinkContents(
            place.name,
            unread="it is not known how to read it; write below {run}, or use --contents",
        )
    return read(place, order)


# Records that came to the driver


def _read_printed(place: SinkPlace, order: Order) -> SinkContents:
    lines = _lines(order.path / "stdout")
    found = (_LINE.fullmatch(line) for line in lines)
    records = [match[2] for match in found if match is not None and match[1] == place.id]
    return SinkContents.of_records(place.name, records, Guarantee(place.guarantee))


# Files


def _read_files(place: SinkPlace, order: Order) -> SinkContents:
    lines = (line for path in _visible(Path(place.place["path"])) for line in _lines(path))
    if place.place["encoded"]:
        lines = (_decoded(line) for line in lines)
    return SinkContents.of_records(place.name, lines, Guarantee(place.guarantee))


def _decoded(line: str) -> str:
    return base64.b64decode(line).decode(errors="backslashreplace").removesuffix("\n")


def _read_rows(place: SinkPlace, order: Order) -> SinkContents:
    """Read what Spark has written."""
    kind, path = place.place["format"], Path(place.place["path"])
    files = [file for file in _visible(path) if not file.name.startswith("_")]
    if kind == "parquet":
        records: Iterable[str] = (repr(row) for file in files for row in _parquet_rows(file))
    elif kind in ("json", "text", "csv"):
        records = (line for file in files for line in _lines(file))
    else:
        return SinkContents(
            place.name, unread=f"files of format '{kind}' are not read; use --contents"
        )
    return SinkContents.of_records(place.name, records, Guarantee(place.guarantee))


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    # NB: not read_table, which takes a directory such as ``country=CH`` for a column
    return list(parquet.ParquetFile(path).read().to_pylist())


def _read_delta(place: SinkPlace, order: Order) -> SinkContents:
    path = place.place["path"]
    rows = _delta_rows(path) if Path(path).exists() else ()
    return SinkContents.of_records(place.name, map(repr, rows), Guarantee(place.guarantee))


def _delta_rows(path: str) -> Iterator[dict[str, Any]]:
    # NB: not as a dataset of pyarrow, whose threads may outlive the reading
    source = DeltaSource.for_table(path).as_dicts().build()
    reader = source.create_reader(0, 1)
    reader.follow(source.create_planner(restored=False).plan())
    try:
        for rows in reader.read(sys.maxsize):
            yield from rows
    finally:
        reader.close()


def _read_iceberg(place: SinkPlace, order: Order) -> SinkContents:
    table = TableAddress(**place.place).load()
    rows = table.scan().to_arrow().to_pylist()
    return SinkContents.of_records(place.name, map(repr, rows), Guarantee(place.guarantee))


def _read_output(output: Path, taken: Iterable[Path]) -> dict[str, SinkContents]:
    """Return the lines of the files that the program wrote itself, by directory.

    The names of files are not compared, because they may be random; logs are not, either.
    """
    folders = set(taken)
    lines: dict[str, list[str]] = {}
    for path in _visible(output):
        if path.suffix != _LOG and not folders.intersection(path.parents):
            name = (_OUTPUT / path.parent.relative_to(output)).as_posix()
            lines.setdefault(name, []).extend(_lines(path))
    return {
        name: SinkContents.of_records(f"files in {{run}}{name.removeprefix(_OUTPUT)}", found)
        for name, found in lines.items()
    }


def _visible(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if path.is_file() and not hidden:
            yield path


def _lines(path: Path) -> list[str]:
    # NB: a line without its end may be cut off, and is a difference then
    return path.read_text(errors="backslashreplace").split("\n")[:-1]


# Topics and tables


def _read_topics(place: SinkPlace, order: Order) -> SinkContents:
    properties, suffix = place.place["properties"], place.place["suffix"]
    records = [
        f"{topic.removesuffix(suffix)}: {canonical(_text(key))} = {canonical(_text(value))}"
        for topic, key, value in _messages(properties, suffix)
    ]
    return SinkContents.of_records(place.name, records, Guarantee(place.guarantee))


def _messages(
    properties: Mapping[str, str], suffix: str
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """Yield the committed messages of all topics with a suffix."""
    kafka = library()
    settings = {"bootstrap.servers": properties["bootstrap.servers"]}
    settings |= {
        key: value
        for key, value in properties.items()
        if key.startswith(("sasl", "ssl", "security"))
    }
    metadata = KafkaMetadata(settings)
    topics = {name: ids for name, ids in metadata.topics().items() if name.endswith(suffix)}
    splits = [(name, number) for name, ids in topics.items() for number in ids]
    if not splits:
        return
    first = metadata.earliest(splits)
    consumer = new_consumer({**settings, "isolation.level": "read_committed"})
    try:
        consumer.assign([kafka.TopicPartition(*split, first[split]) for split in splits])
        left = set(splits)
        while left:
            message = consumer.poll(_SECONDS)
            if message is None:
                break
            error = message.error()
            if error is None:
                yield message.topic() or "", _bytes(message.key()), _bytes(message.value())
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                left.discard((message.topic() or "", message.partition() or 0))
            else:
                raise kafka.KafkaException(error)
    finally:
        consumer.close()


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _read_table(place: SinkPlace, order: Order) -> SinkContents:
    client = HBaseClient(
        HBaseOptions(**{**place.place["options"], "table_name": place.place["table"]})
    )
    try:
        values = {
            _text(key): json.dumps(
                {_text(name): _text(cell) for name, cell in sorted(cells.items())}
            )
            for key, cells in client.scan()
        }
    finally:
        client.close()
    return SinkContents.of_values(place.name, values)


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="backslashreplace")


# What the user reads


def _given(contents: Mapping[str, Iterable[Any] | Mapping[Any, Any]]) -> dict[str, SinkContents]:
    return {
        f"own-{name}": SinkContents.of_values(name, {str(k): str(v) for k, v in given.items()})
        if isinstance(given, Mapping)
        else SinkContents.of_records(name, map(str, given))
        for name, given in contents.items()
    }


_READERS: Final[Mapping[str, Callable[[SinkPlace, Order], SinkContents]]] = {
    "printed": _read_printed,
    "files": _read_files,
    "rows": _read_rows,
    "delta": _read_delta,
    "iceberg": _read_iceberg,
    "kafka": _read_topics,
    "hbase": _read_table,
}
