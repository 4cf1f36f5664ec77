"""Parquet part files: hidden until their checkpoint is complete, then there, once, as one file."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, Row, Types
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import (
    BucketAssigner,
    BulkWriter,
    BulkWriterFactory,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from holdfast.datastream.connectors.files import bulk_sink, part_files
from holdfast.datastream.connectors.files.part_files import Part, Place, Segment
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.errors import UserFunctionError
from holdfast.filesystem import FileSystemError, configure, file_system_of, join
from holdfast.state.types.serializers import Serializer
from holdfast.testing import Crash, EndOfEpoch, LocalExecutor, ScriptedSource
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine

#: a process that is killed does not close its files
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])


@pytest.fixture(params=["local", "s3"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An output directory that is not there yet."""
    if request.param == "local":
        yield str(tmp_path / "out")
        return
    s3 = request.getfixturevalue("s3")
    configure(s3.options)
    yield f"{s3.uri}/out"
    configure({})


@pytest.fixture
def local(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class _NumberWriter(BulkWriter):
    """Makes a row of each number that the engine gives."""

    def __init__(self, writer: BulkWriter) -> None:
        self._writer = writer
        self.flush = writer.flush  # type: ignore[method-assign]
        self.finish = writer.finish  # type: ignore[method-assign]

    def add_element(self, element: int) -> None:
        self._writer.add_element((element, f"number {element}"))

    def flush(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError


@dataclasses.dataclass
class Numbers(BulkWriterFactory):
    rows: BulkWriterFactory = ParquetBulkWriters.for_row_type(SCHEMA, row_group_size=3)  # noqa: RUF009
    suffix = ".parquet"

    def create(self, stream: BinaryIO) -> BulkWriter:
        return _NumberWriter(self.rows.create(stream))

    def merge(self, files: Sequence[BinaryIO], stream: BinaryIO) -> None:
        self.rows.merge(files, stream)


def sink(
    base: str,
    buckets: BucketAssigner | None = None,
    rolling: RollingPolicy | None = None,
) -> FileSinkFunction:
    builder = FileSink.for_bulk_format(base, Numbers())
    builder.with_bucket_assigner(buckets or BucketAssigner.base_path_bucket_assigner())
    if rolling is not None:
        builder.with_rolling_policy(rolling)
    return builder.build().create_function()


def walk(base: str) -> dict[str, bytes]:
    """The contents of all files below a directory, by their path from there."""
    system, top = file_system_of(base)

    def below(path: str) -> Iterator[str]:
        for status in system.list_directory(path):
            inner = join(path, status.name)
            if status.is_directory:
                yield from below(inner)
            else:
                yield inner

    return {path.removeprefix(top + "/"): system.read(path) for path in below(top)}


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def parts(base: str) -> dict[str, list[int]]:
    """The numbers in the part files: what a reader sees. Every file is whole."""
    found = {}
    for path, data in walk(base).items():
        if not is_hidden(path):
            table = pq.ParquetFile(io.BytesIO(data)).read()
            assert table.schema == SCHEMA
            rows = table.to_pylist()
            assert [row["text"] for row in rows] == [f"number {row['n']}" for row in rows]
            found[path] = [row["n"] for row in rows]
    return found


def hidden(base: str) -> list[str]:
    return [path for path in walk(base) if is_hidden(path)]


def records(base: str) -> list[int]:
    return sorted(number for numbers in parts(base).values() for number in numbers)


def test_a_checkpoint_of_several_epochs_is_one_part_file(base: str) -> None:
    job = SinkEngine(sink(base))
    job.epoch(3)
    job.epoch(2)
    job.epoch(4, checkpoint=True)
    assert parts(base) == {}
    job.epoch(1, checkpoint=True)
    ((name, numbers),) = parts(base).items()
    assert numbers == list(range(9))
    assert re.fullmatch(r"part-[0-9a-f]{16}-0-0\.parquet", name)
    assert len(hidden(base)) == 1
    job.finish()
    assert records(base) == list(range(10))
    assert hidden(base) == []


def test_segments_that_were_merged_are_deleted_with_the_publication(local: str) -> None:
    job = SinkEngine(sink(local), parallelism=2)
    job.epoch(4)
    job.epoch(4, checkpoint=True)
    assert len(hidden(local)) == 6  # two of each subtask, and what they became
    job.epoch()
    assert hidden(local) == []
    assert sorted(parts(local).values()) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_an_epoch_can_be_run_again_after_its_segments_were_merged(base: str) -> None:
    job = SinkEngine(sink(base), parallelism=2)
    job.epoch(4, fates=[Killed(1), Failed(1), Lost()])
    job.epoch(4, fates=[Lost(), Lost()], checkpoint=True)
    job.epoch(2, fates=[Lost()])
    job.finish()
    assert records(base) == list(range(10))
    assert hidden(base) == []


def test_a_crash_between_checkpoint_and_publication(base: str) -> None:
    job = SinkEngine(sink(base), parallelism=2)
    job.epoch(4)
    job.epoch(4, checkpoint=True)
    job.restart(3)
    job.epoch()
    assert records(base) == list(range(8))
    assert len(parts(base)) == 2
    job.restart(1)
    job.epoch(2)
    job.finish()
    assert records(base) == list(range(10))
    assert hidden(base) == []


def test_a_crash_before_the_checkpoint_leaves_what_was_published(base: str) -> None:
    job = SinkEngine(sink(base))
    job.epoch(4, checkpoint=True)
    job.epoch(4)
    job.epoch(4, checkpoint=True, complete=False)
    before = parts(base)
    assert list(before.values()) == [[0, 1, 2, 3]]
    job.restart()
    job.epoch()
    assert parts(base) == before
    job.epoch(4)
    job.finish()
    assert records(base) == list(range(8))


def test_a_job_without_checkpoints_shows_accepted_epochs(base: str) -> None:
    job = SinkEngine(sink(base), checkpoints=False)
    job.epoch(3, fates=[Lost()])
    assert parts(base) == {}
    job.epoch(3, fates=[Lost(), Killed(1)])
    assert records(base) == [0, 1, 2]
    job.finish()
    assert records(base) == [0, 1, 2, 3, 4, 5]
    assert hidden(base) == []


def test_a_subtask_that_stays_writes_one_file_per_checkpoint(local: str) -> None:
    job = SinkEngine(sink(local), stays=True)
    job.epoch(3)
    job.epoch(3, checkpoint=True)
    job.epoch(2)
    job.finish()
    assert sorted(parts(local).values()) == [list(range(6)), [6, 7]]


class ByParity(BucketAssigner):
    def bucket(self, record: Any, now_ms: int) -> str:
        return f"parity={record % 2}"


def test_buckets_are_directories(base: str) -> None:
    job = SinkEngine(sink(base, buckets=ByParity()))
    job.epoch(4)
    job.epoch(2, checkpoint=True)
    job.epoch()
    found = {path.rsplit("/", 1)[0]: numbers for path, numbers in parts(base).items()}
    assert found == {"parity=0": [0, 2, 4], "parity=1": [1, 3, 5]}


def test_part_files_are_split_by_size_and_age(local: str) -> None:
    job = SinkEngine(sink(local, rolling=RollingPolicy.default_rolling_policy(part_size=8)))
    job.epoch(7, checkpoint=True)  # three rows are a row group, and that is larger than 8 bytes
    job.epoch()
    assert sorted(parts(local).values()) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_part_file_is_closed_when_nothing_is_added(local: str) -> None:
    rolling = RollingPolicy.default_rolling_policy(1 << 20, 60_000, 5000)
    job = SinkEngine(sink(local, rolling=rolling), stays=True)
    for pause in ("1 s", "4 s", "4 s", "6 s", "1 s"):
        job.epoch(1)
        job.clock.advance(pause)
        job.epoch()
    job.finish()
    assert sorted(parts(local).values()) == [[0, 1, 2, 3], [4]]


def test_memory_is_bounded(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_sink, "_MOST_HELD", 10)
    job = SinkEngine(sink(local))
    job.epoch(25)
    job.finish()
    (path,) = Path(local).glob("*.parquet")
    file = pq.ParquetFile(path)
    sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert sizes == [3, 3, 3, 1, 3, 3, 3, 1, 3, 2]
    assert parts(local)[path.name] == list(range(25))


STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda n, fates, barrier, complete: ("epoch", n, fates, barrier, complete),
            st.integers(0, 5),
            st.lists(st.sampled_from([Killed(0), Killed(1), Failed(1), Lost()]), max_size=2),
            st.booleans(),
            st.sampled_from([True, True, False, None]),
        ),
        st.builds(lambda n, new: ("restart", n, new), st.integers(1, 3), st.booleans()),
        st.builds(lambda n: ("zombie", n), st.integers(0, 50)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("stays", [False, True])
@settings(max_examples=30, deadline=None)
@given(steps=STEPS, parallelism=st.integers(1, 3))
def test_every_record_is_there_once_whatever_happens(
    stays: bool, steps: list[Any], parallelism: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        job = SinkEngine(sink(directory, buckets=ByParity()), parallelism, stays=stays)
        for kind, *given_ in steps:
            if kind == "epoch":
                n, fates, barrier, complete = given_
                job.epoch(n, fates=() if stays else fates, checkpoint=barrier, complete=complete)
            elif kind == "restart":
                other = sink(directory, buckets=ByParity()) if given_[1] else None
                job.restart(given_[0], other)
            elif job.zombies and not stays:
                with contextlib.suppress(FileSystemError):  # it may fail, if it does no harm
                    job.zombies[given_[0] % len(job.zombies)]()
            seen = records(directory)
            assert seen == sorted(set(seen)), "nothing is seen twice"
            assert set(seen) <= set(range(job.completed.position)), "nothing is seen too early"
        job.finish()
        assert records(directory) == list(range(job.position))


def test_transactions_of_earlier_versions_are_read() -> None:
    """They have no names of segments that were merged."""

    @dataclasses.dataclass
    class FileTransaction:
        place: Place
        parts: list[Part] = dataclasses.field(default_factory=list)

    place = Place("out", "sink")
    parts = [Part("", (Segment(".0-0-a", 5, 0),), "part-0")]
    old = Serializer(type_info_of(FileTransaction))
    column = old.encode([FileTransaction(place, parts)])
    reader = Serializer(type_info_of(part_files.FileTransaction)).reading(old.schema)
    assert reader.decode(column) == [part_files.FileTransaction(place, parts)]


# --- jobs ---------------------------------------------------------------------------------------


class Country(Enum):
    CH = "CH"
    FR = "FR/Corse"


@dataclasses.dataclass
class Sale:
    id: int
    amount: float
    country: Country | None


SALES = [Sale(n, n / 4, [Country.CH, Country.FR, None][n % 3]) for n in range(30)]


def write_sales(stream: Any, path: Path, **options: Any) -> None:
    writers = ParquetBulkWriters.for_row_type(options.pop("row_type", Sale), **options)
    builder = FileSink.for_bulk_format(str(path), writers)
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    stream.sink_to(builder.build()).name("sales").uid("sales")


def test_a_job_that_crashes_writes_every_record_once(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing("1 h")
    script = [*SALES[:7], EndOfEpoch(), *SALES[7:15], EndOfEpoch(), *SALES[15:20], Crash()]
    source = ScriptedSource([*script, *SALES[20:25], EndOfEpoch(), *SALES[25:]])
    write_sales(env.from_source(source).rebalance(), tmp_path / "out")
    with LocalExecutor(env, workers=2) as run:
        run.epoch()
        run.epoch(rerun=True, checkpoint=True)
        with pytest.raises(UserFunctionError, match="SimulatedCrash"):
            run.epoch()
        assert run.recover() == 1
        run.epoch(kill=True)
        run.run_to_end()
    files = str(tmp_path / "out" / "*.parquet")
    expected = [(s.id, s.amount, s.country and s.country.value) for s in SALES]
    by_duckdb = duckdb.sql(f"select id, amount, country from '{files}' order by id").fetchall()
    assert by_duckdb == expected
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_a_savepoint_with_files_that_are_not_published(tmp_path: Path) -> None:
    def job(restore: str | None = None) -> StreamExecutionEnvironment:
        configuration = Configuration({"execution.checkpointing.interval": "1 h"})
        if restore is not None:
            configuration.set_string("execution.state-recovery.path", restore)
        env = StreamExecutionEnvironment(configuration).set_parallelism(1)
        script = [*SALES[:3], EndOfEpoch(), *SALES[3:5], EndOfEpoch(), *SALES[5:6]]
        write_sales(env.from_source(ScriptedSource(script)).uid("source"), tmp_path / "out")
        return env

    with LocalExecutor(job()) as run:
        run.epoch()
        run.epoch()
        savepoint = run.savepoint(str(tmp_path / "elsewhere"))
    with LocalExecutor(job(savepoint)) as run:
        run.run_to_end()
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == list(range(6))


@pytest.mark.parametrize("row_group_size", [1, 2, 100])
def test_a_record_that_does_not_fit_fails_the_job(
    env: StreamExecutionEnvironment, tmp_path: Path, row_group_size: int
) -> None:
    """Whether it is found with the record itself, with a later one, or at the end of the epoch."""
    row_type = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    rows = [Row(id=1, name="a"), Row(id=2**40, name="b"), Row(id=3, name="c")]
    write_sales(
        env.from_collection(rows),
        tmp_path / "out",
        row_type=row_type,
        row_group_size=row_group_size,
    )
    with LocalExecutor(env, parallelism=1) as run, pytest.raises(UserFunctionError) as caught:
        run.run_to_end()
    message = str(caught.value)
    assert "operator 'sales'" in message
    assert "field 'id' is declared int32; its value 1099511627776 does not fit" in message
    assert "record: Row(id=1099511627776, name='b')" in message
    assert list((tmp_path / "out").glob("*.parquet")) == []


def test_directories_by_fields_are_partitions_for_others(tmp_path: Path) -> None:
    buckets = BucketAssigner.field_bucket_assigner("country")
    rows = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(rows))
    builder.with_output_file_config(OutputFileConfig("sales"))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(SALES).sink_to(builder.with_bucket_assigner(buckets).build())
    with LocalExecutor(env) as run:
        run.run_to_end()
    names = {path.parent.name for path in tmp_path.glob("*/sales-*.parquet")}
    assert names == {
        *("country=CH", "country=FR%2FCorse", "country=__HIVE_DEFAULT_PARTITION__"),
    }
    found = duckdb.sql(
        f"select country, count(*), sum(id) from read_parquet('{tmp_path}/*/*.parquet', "
        "hive_partitioning = true) group by all"
    ).fetchall()
    sums = {
        country: sum(s.id for s in SALES if s.country is country) for country in [*Country, None]
    }
    assert {key: total for key, _, total in found} == {
        key and key.value: total for key, total in sums.items()
    }


@pytest.mark.parametrize(
    ("record", "bucket"),
    [
        ({"a": "..", "b": 1}, "a=../b=1"),
        (Row(a="", b=None), "a=__HIVE_DEFAULT_PARTITION__/b=__HIVE_DEFAULT_PARTITION__"),
        (Row(a="x=y z", b="ü"), "a=x%3Dy z/b=%C3%BC"),
    ],
)
def test_values_in_directories_are_escaped(record: Any, bucket: str) -> None:
    assert BucketAssigner.field_bucket_assigner("a", "b").bucket(record, 0) == bucket


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"compression must be one of zstd, .*, none; got 'zip'"):
        ParquetBulkWriters.for_row_type(Sale, compression="zip")
    with pytest.raises(ValueError, match="row_group_size must be at least 1; got 0"):
        ParquetBulkWriters.for_row_type(Sale, row_group_size=0)
    with pytest.raises(ValueError, match="needs the name of at least one field"):
        BucketAssigner.field_bucket_assigner()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "brotli", "none"])
def test_compression(compression: str) -> None:
    factory = ParquetBulkWriters.for_row_type(SCHEMA, compression=compression)
    stream = io.BytesIO()
    writer = factory.create(stream)
    writer.add_element((1, "a"))
    writer.finish()
    column = pq.ParquetFile(stream).metadata.row_group(0).column(0)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
