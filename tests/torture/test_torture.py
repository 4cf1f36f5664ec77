"""``holdfast torture`` on Spark: a short one. ``scripts/torture.py`` has longer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 900

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST + 60)]

#: keyed state; every number is counted once, and printed at least once
GOOD = """
import sys
from holdfast.common import Encoder
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
counts = (
    env.from_source(NumberSequenceSource(1, 1000))
    .map(lambda number: (number % 7, 1))
    .key_by(lambda pair: pair[0])
    .reduce(lambda a, b: (a[0], a[1] + b[1]))
)
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder())
counts.sink_to(sink.build()).name("files")
counts.print()
env.execute("good")
"""


def tortured(folder: Path, *arguments: str) -> tuple[int, Mapping[str, Any], str]:
    """Return the exit code, the report, and what was printed."""
    command = [sys.executable, "-m", "holdfast", "torture", "--report", str(folder / "report")]
    done = subprocess.run(
        [*command, "--calm", "1", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    written = folder / "report" / "report.json"
    report = json.loads(written.read_bytes()) if written.exists() else {}
    return done.returncode, report, done.stdout + done.stderr


def test_nothing_is_found_in_a_good_job(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(GOOD)
    production = tmp_path / "production"
    kinds = "kill-worker,stop-worker,cut,fail-task,fail-store,rescale,kill-driver"
    options = ("--faults", "7", "--seed", "1124", "--only", kinds)
    code, report, output = tortured(tmp_path, *options, "job.py", str(production))
    assert code == 0, output
    assert sum(report["by_kind"].values()) == 7
    assert len(report["by_kind"]) >= 4
    files, printed = report["sinks"]
    assert (files["name"], files["guarantee"]) == ("files", "exactly once")
    assert (files["expected"], files["found"]) == (1000, 1000)
    assert (printed["guarantee"], printed["missing"]) == ("at least once", 0)
    assert not production.exists(), "the sink was redirected"


def test_a_planted_mistake_is_found(tmp_path: Path) -> None:
    program = str(ROOT / "examples" / "broken" / "source_loses_position.py")
    options = ("--faults", "2", "--seed", "1", "--only", "kill-worker,fail-task")
    code, report, output = tortured(tmp_path, *options, program)
    assert code == 1, output
    found = [finding for finding in report["findings"] if finding["kind"] == "surplus"]
    assert any(finding["fault"] is not None for finding in found), output
    assert "seen after fault" in output


#: batches and state in columns, compaction, and rows that Spark writes; all of it exactly once
COLUMNS = """
import sys
import pyarrow as pa
import pyarrow.compute as pc
from holdfast.common import Encoder
from holdfast.datastream import KeyedBatchFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.file_system import FileCompactor, FileCompactStrategy, FileSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.formats.parquet import ParquetBulkWriters
from holdfast.datastream.state import ColumnStateDescriptor

KEYS = pa.schema([("key", pa.int64())])
COUNTS = pa.schema([("key", pa.int64()), ("n", pa.int64())])


class Count(KeyedBatchFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_column_state(ColumnStateDescriptor("n", pa.int64(), 0))

    def process_batch(self, batch, keys, ctx):
        yield {"key": batch["key"], "n": self.n.running_count(keys)}


def keys_of(batch):
    return {"key": pc.bit_wise_and(batch["value"], 7)}


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = env.from_source(NumberSequenceSource(1, 1000).in_batches())
counts = numbers.map_batches(keys_of, KEYS).key_by("key").process_batches(Count(), COUNTS)
often = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
rows = FileSink.for_bulk_format(sys.argv[1], ParquetBulkWriters.for_row_type(COUNTS))
rows.enable_compact(often, FileCompactor.record_wise_file_compactor())
counts.sink_to(rows.build()).name("rows")
lines = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder())
lines.enable_compact(often, FileCompactor.concat_file_compactor(b"--"))
counts.map(lambda row: f"{row.key} {row.n}").sink_to(lines.build()).name("lines")
spark = DataFrameSink("parquet", sys.argv[1], schema="key BIGINT, n BIGINT")
counts.sink_to(spark).name("written by Spark")
env.execute("columns")
"""


@pytest.mark.parametrize("engine", ["resident", "epochs"])
def test_columns_compaction_and_rows_of_spark_recover(tmp_path: Path, engine: str) -> None:
    (tmp_path / "job.py").write_text(COLUMNS)
    production = tmp_path / "production"
    kinds = "kill-worker,fail-task,fail-store,kill-driver"
    options = ("--faults", "4", "--seed", "6", "--only", kinds, "--engine", engine)
    code, report, output = tortured(tmp_path, *options, "job.py", str(production))
    assert code == 0, output
    assert sum(report["by_kind"].values()) == 4
    compared = {sink["name"]: (sink["guarantee"], sink["found"]) for sink in report["sinks"]}
    assert compared == dict.fromkeys(("rows", "lines", "written by Spark"), ("exactly once", 1000))
    assert not production.exists(), "the sinks were redirected"


#: tables of both kinds: rows that are appended, and the newest row of each key
TABLES = """
import sys
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.delta import DeltaSink
from holdfast.datastream.connectors.iceberg import IcebergSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

COUNTS = pa.schema([("key", pa.int64()), ("n", pa.int64())])
lake = sys.argv[1]
catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}"}
load_catalog("lake", **catalog).create_namespace_if_not_exists("lake")


def delta(name):
    return DeltaSink.for_table(f"{lake}/{name}", COUNTS)


def iceberg(name):
    sink = IcebergSink.builder().set_catalog("lake", catalog).set_table(f"lake.{name}")
    return sink.set_schema(COUNTS).create_if_absent()


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = env.from_source(NumberSequenceSource(1, 1000)).map(lambda number: (number % 50, 1))
counts = numbers.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
for kind, sink in (("Delta", delta), ("Iceberg", iceberg)):
    counts.sink_to(sink("counts").build()).name(f"{kind} appended")
    counts.sink_to(sink("newest").upsert_by("key").build()).name(f"{kind} by key")
env.execute("tables")
"""


def test_tables_recover(tmp_path: Path) -> None:
    """The driver is killed between the completion of a checkpoint and the commits."""
    (tmp_path / "job.py").write_text(TABLES)
    lake = tmp_path / "lake"
    lake.mkdir()
    options = ("--faults", "4", "--seed", "1542", "--engine", "resident")
    kinds = ("--only", "kill-worker,kill-driver,fail-store")
    code, report, output = tortured(tmp_path, *options, *kinds, "job.py", str(lake))
    assert code == 0, output
    assert report["by_kind"] == {"kill-worker": 2, "kill-driver": 1, "fail-store": 1}
    found = {sink["name"].split(":")[0]: sink["found"] for sink in report["sinks"]}
    tables = {"Delta appended": 1000, "Delta by key": 50}
    assert found == tables | {"Iceberg appended": 1000, "Iceberg by key": 50}
    assert {sink["guarantee"] for sink in report["sinks"]} == {"exactly once"}
    assert not (lake / "counts" / "_delta_log").exists(), "the sinks were redirected"


CHANGED_IN_PLACE = str(ROOT / "tests" / "torture" / "changed_in_place.py")

#: the same, but functions get the objects that a checkpoint refers to while it is written
UNGUARDED = """
import sys
from holdfast.state.live.overlaid import OverlaidTable
from holdfast.state.live.tables import Table
from tests.torture import changed_in_place


class Unguarded(changed_in_place.EveryKind):
    def open(self, runtime_context):
        def unguarded(table, guards):
            table.overlay.__missing__ = table._look_up

        Table.share = lambda table, keys: None
        OverlaidTable._guard = unguarded
        super().open(runtime_context)


changed_in_place.EveryKind = Unguarded
changed_in_place.main(sys.argv[1], 600, pause=0.03)
"""


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_values_that_are_changed_in_place_are_in_checkpoints_as_they_were(
    tmp_path: Path, backend: str
) -> None:
    options = ("--faults", "3", "--seed", "1", "--only", "kill-worker,fail-task")
    store = ("-D", f"state.backend.type={backend}")
    program = (CHANGED_IN_PLACE, str(tmp_path / "production"), "600")
    code, report, output = tortured(tmp_path, *options, *store, *program)
    assert code == 0, output
    assert sum(report["by_kind"].values()) == 3
    (counts,) = report["sinks"]
    # of each number and of each rule, and twice of each key's window
    assert (counts["guarantee"], counts["found"]) == ("exactly once", 600 + 150 + 2 * 12)


def test_values_that_a_checkpoint_shares_with_functions_are_found(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(UNGUARDED)
    options = ("--faults", "3", "--seed", "1", "--only", "kill-worker,fail-task")
    code, report, output = tortured(tmp_path, *options, "job.py", str(tmp_path / "production"))
    assert code == 1, output
    assert any(finding["fault"] is not None for finding in report["findings"]), output
