"""Parquet files are read by row groups, each record once, whatever happens."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, Duration, Row, Types
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSource
from holdfast.datastream.connectors.files.source import FileSourceBuilder
from holdfast.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from holdfast.filesystem import configure, file_system_of, join
from holdfast.testing import LocalExecutor, collect

UTC = datetime.UTC
#: how to connect to the file system of a test
OPTIONS: dict[str, str] = {}


@dataclasses.dataclass
class Number:
    n: int


@pytest.fixture(params=["local", "s3"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "local":
        (tmp_path / "in").mkdir()
        yield str(tmp_path / "in")
        return
    s3 = request.getfixturevalue("s3")
    configure(s3.options)
    monkeypatch.setattr(sys.modules[__name__], "OPTIONS", s3.options)
    system, path = file_system_of(f"{s3.uri}/in")
    system.make_directories(path)
    yield f"{s3.uri}/in"
    configure({})


def write(folder: str, name: str, numbers: range, group: int = 7) -> None:
    system, path = file_system_of(join(folder, name))
    writer_stream = system.open_output(path)
    with writer_stream as stream:
        writer = ParquetBulkWriters.for_row_type(Number, row_group_size=group).create(stream)
        for number in numbers:
            writer.add_element(Number(number))
        writer.finish()


def builder(folder: str, row_type: Any = Number, batch_size: int = 5) -> FileSourceBuilder:
    reading = ParquetColumnarRowInputFormat(row_type, batch_size=batch_size)
    return FileSource.for_bulk_file_format(reading, folder)


def stream_of(source: FileSourceBuilder, parallelism: int = 2, restore: str = "") -> DataStream:
    env = StreamExecutionEnvironment(Configuration(dict(OPTIONS)))
    env.set_parallelism(parallelism)
    env.enable_checkpointing("1 h")
    if restore:
        env._configuration.set_string("execution.state-recovery.path", restore)
    return env.from_source(source.build()).uid("files")


def numbers_of(run: LocalExecutor) -> list[int]:
    return sorted(record.n for record in run.records)


def test_every_record_is_read_once(folder: str) -> None:
    write(folder, "a.parquet", range(20))
    write(folder, "deeper/b.parquet", range(20, 30))
    write(folder, "_hidden.parquet", range(100, 110))
    write(folder, ".holdfast-x/c.parquet", range(100, 110))
    with LocalExecutor(stream_of(builder(folder)), quota=3, workers=2, seed=1) as run:
        run.epoch()
        run.epoch(rerun=True)
        run.epoch(kill=True)
        run.epoch(checkpoint=True)
        run.recover()
        run.run_to_end()
    assert numbers_of(run) == list(range(30))


@pytest.mark.parametrize("after", [1, 3])
def test_reading_goes_on_with_another_parallelism(tmp_path: Path, after: int) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for name, at in (("a", 0), ("b", 20), ("c", 40)):
        write(str(source), f"{name}.parquet", range(at, at + 20))
    with LocalExecutor(stream_of(builder(str(source))), quota=9) as run:
        run.epoch()
        run.epoch()
        path = run.savepoint(tmp_path / "savepoints", stop=True)
        first = list(run.records)
    assert 0 < len(first) < 60
    with LocalExecutor(stream_of(builder(str(source)), after, path)) as run:
        run.run_to_end()
        run.records[:0] = first
    assert numbers_of(run) == list(range(60))


def test_new_files_are_read_as_they_appear(folder: str) -> None:
    source = builder(folder).monitor_continuously(Duration.of_millis(0))
    with LocalExecutor(stream_of(source)) as run:
        write(folder, "a.parquet", range(10))
        run.epoch()
        assert numbers_of(run) == list(range(10))
        write(folder, "b.parquet", range(10, 15))
        run.epoch(checkpoint=True)
        run.recover()
        run.epoch()
        write(folder, "c.parquet", range(15, 16))
        run.epoch()
    assert numbers_of(run) == list(range(16))


def test_a_file_stays_open_between_epochs_of_one_process(tmp_path: Path) -> None:
    write(str(tmp_path), "a.parquet", range(20))
    reader = builder(str(tmp_path)).build().create_reader(0, 1)
    got = [number.n for batch in reader.read(3) for number in batch]
    (tmp_path / "a.parquet").rename(tmp_path / "moved")
    got += [number.n for batch in reader.read(4) for number in batch]
    position = reader.position()
    reader.restore(position)
    got += [number.n for batch in reader.read(4) for number in batch]
    assert got == list(range(11))
    reader.restore(({str(tmp_path / "a.parquet"): 2}, False, {str(tmp_path / "a.parquet"): 0}))
    with pytest.raises(FileNotFoundError, match=r"a\.parquet"):
        list(reader.read(1))
    (tmp_path / "moved").rename(tmp_path / "a.parquet")
    assert [number.n for batch in reader.read(100) for number in batch] == list(range(2, 20))
    assert reader.finished
    reader.close()


@pytest.mark.parametrize("start", range(21))
def test_any_position_is_found(start: int) -> None:
    stream = io.BytesIO()
    writer = ParquetBulkWriters.for_row_type(Number, row_group_size=6).create(stream)
    for number in range(20):
        writer.add_element((number,))
    writer.finish()
    reading = ParquetColumnarRowInputFormat(Number, batch_size=4).open(stream)
    assert [row.n for batch in reading.read(start) for row in batch] == list(range(start, 20))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(Exception, match=r"FileSource cannot read '.*broken\.parquet'"):
        collect(stream_of(builder(str(tmp_path))))
    with pytest.raises(FileNotFoundError, match=r"there is no file or directory .*nothing"):
        builder(str(tmp_path / "nothing")).build()
    with pytest.raises(ValueError, match="nothing"):
        builder("nothing://x/y").build()
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        ParquetColumnarRowInputFormat(batch_size=0)


# --- types ----------------------------------------------------------------------------------------


class Kind(enum.Enum):
    A = "a"
    B = "b"


class Inner(msgspec.Struct):
    x: int
    tags: list[str | None]


class Pair(NamedTuple):
    left: int
    right: str | None


@dataclasses.dataclass
class Everything:
    number: int
    share: float
    text: str
    data: bytes
    flag: bool
    price: Decimal
    at: datetime.datetime
    day: datetime.date
    time: datetime.time
    kind: Kind
    key: uuid.UUID
    inner: Inner
    inners: list[Inner]
    counts: dict[str, int | None]
    deep: dict[str, list[Inner]]
    note: str | None


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENTS = st.datetimes(
    datetime.datetime(1700, 1, 1),  # noqa: DTZ001
    datetime.datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
INNER = st.builds(Inner, st.integers(-(2**63), 2**63 - 1), st.lists(TEXT | st.none(), max_size=3))
EVERYTHING = st.builds(
    Everything,
    number=st.integers(-(2**63), 2**63 - 1),
    share=st.floats(allow_nan=False),
    text=TEXT,
    data=st.binary(max_size=8),
    flag=st.booleans(),
    price=st.decimals(-(10**12), 10**12, places=18),
    at=MOMENTS,
    day=st.dates(),
    time=st.times(),
    kind=st.sampled_from(Kind),
    key=st.uuids(),
    inner=INNER,
    inners=st.lists(INNER, max_size=3),
    counts=st.dictionaries(TEXT, st.integers(0, 9) | st.none(), max_size=3),
    deep=st.dictionaries(TEXT, st.lists(INNER, max_size=2), max_size=2),
    note=TEXT | st.none(),
)


def there_and_back(row_type: Any, records: list[Any], read_as: Any) -> list[Any]:
    stream = io.BytesIO()
    writer = ParquetBulkWriters.for_row_type(row_type, row_group_size=2).create(stream)
    for record in records:
        writer.add_element(record)
    writer.finish()
    reading = ParquetColumnarRowInputFormat(read_as, batch_size=3).open(stream)
    return [record for batch in reading.read(0) for record in batch]


@settings(max_examples=60, deadline=None)
@given(st.lists(EVERYTHING, max_size=5))
def test_all_types_come_back_as_they_were(records: list[Everything]) -> None:
    assert there_and_back(Everything, records, Everything) == records


def test_rows_dicts_and_tuples() -> None:
    inner = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.LIST(Types.STRING())])
    declared = Types.ROW_NAMED(
        ["inner", "by_name", "all"],
        [inner, Types.MAP(Types.STRING(), Types.LONG()), Types.LIST(inner)],
    )
    row = Row(inner=Row(x=1, y=["a"]), by_name={"k": 5}, all=[Row(x=2, y=[]), None])
    empty = Row(inner=None, by_name=None, all=None)
    assert there_and_back(declared, [row, empty], declared) == [row, empty]
    assert there_and_back(declared, [row, empty], None) == [row, empty]
    (found, nothing) = there_and_back(declared, [row, empty], dict)
    assert found == {
        "inner": {"x": 1, "y": ["a"]},
        "by_name": {"k": 5},
        "all": [{"x": 2, "y": []}, None],
    }
    assert nothing == {"inner": None, "by_name": None, "all": None}
    pairs = [Pair(1, "a"), Pair(2, None)]
    assert there_and_back(Pair, pairs, Pair) == pairs


@dataclasses.dataclass
class Part:
    right: str | None
    added: int | None


def test_columns_are_chosen_and_may_be_missing() -> None:
    assert there_and_back(Pair, [Pair(1, "a")], Part) == [Part("a", None)]
    columns = pa.schema([("right", pa.string())])
    assert there_and_back(Pair, [Pair(1, "a")], columns) == [Row(right="a")]
    with pytest.raises(ValueError, match="there is no column 'n', and it cannot be None"):
        there_and_back(Pair, [Pair(1, "a")], Number)
    with pytest.raises(ValueError, match="Expected `int`, got `str`"):
        there_and_back(pa.schema([("n", pa.string())]), [("x",)], Number)


def test_what_others_have_written_is_read(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int32()).dictionary_encode(), "more": ["a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet", version="1.0", compression="snappy")
    assert collect(stream_of(builder(str(tmp_path)))) == [Number(1), Number(2)]
