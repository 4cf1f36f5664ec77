"""Runs every program in examples/; one that is added there is run without a change here.

All but one run in this process, one after another, over one Spark session. The demonstration runs
in a process of its own, as a user would start it. The programs about checkpoints are run by
``test_fault_tolerance.py``.
"""

import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.testing import LocalExecutor

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES / "keyed_state_demo.py"
#: run by test_fault_tolerance.py, which looks closer, and by those of Kafka and HBase
ELSEWHERE = {
    "buffering_sink",
    "counter_source",
    "fault_simulation",
    "kafka_to_delta",
    "kafka_to_hbase",
    "kafka_to_iceberg",
    "kafka_word_count",
    "state_source_to_sink",
}

#: what must stand in some line of the output; which subtask a key belongs to is not told
EXPECTED = {
    "all_state_kinds": [
        "ada: last=e4, scores=[3, 9, 6], wins={'bob': 1, 'eve': 1}, best=9, average=6.0",
        "bob: last=d4, scores=[5], wins={}, best=5, average=5.0",
    ],
    "async_lookup": [
        "order 1999 is for customer D99",
        "2000 orders have their customers, and hundreds waited at once",
    ],
    "basic_operations": [
        "map> ('shanghai', 25.2)",
        "flat_map> shanghai",
        "filter> Reading(city='shanghai', degrees=25.2)",
        "project> ('berlin',)",
        "sum> ('berlin', 37.0)",
        "max_by> ('nairobi', 24.1)",
        "reduce> ('shanghai', '25.2 23.9')",
        "union> 18.5",
    ],
    "bootstrap_state": [
        "1000 payments were made of the balances in the warehouse",
        "customer-7 has 107 cents left",
        "1000 of 5000 balances have changed",
    ],
    "broadcast_rules": ["frost: garden had -7.5", "every reading met every rule, once"],
    "connected_streams": [
        "order 2 (12.5) is paid",
        "order 3 is not paid",
        "every order and every payment is told of once",
    ],
    "count_per_key": [f"key {key}: 20000" for key in range(10)],
    "count_window_average": ["(1, 4)", "(1, 5)"],
    "custom_source_and_sink": [
        *(f"countdown {number}" for number in range(1, 6)),
        "dice of subtask 0: 2 rolls",
        "dice of subtask 1: 2 rolls",
    ],
    "dataframe_in_and_out": [
        "ann bought 5, 5 in all",
        "ann bought 7, 12 in all",
        "zoe bought 30, 30 in all",
        "from the stream: ann #1, ann #2, zoe #1",
    ],
    "delta_upserts": [
        "6000 changes of 500 orders were written, with one failure in between",
        "the table has one row for each of 400 orders, and none for 100 cancelled ones",
    ],
    "errors": [
        "the job failed in operator 'parse', subtask 0, at record '7,five'",
        "it was: ValueError",
        "refused: operator 'orphan' has parallelism 300, above its max parallelism 128",
    ],
    "event_time_timers": ["at 10:12 ann left a hat", "as plain Python says"],
    "exactly_once_files": [
        "failed once, restarted, and wrote 6000 orders to",
        "none is lost, none is doubled",
    ],
    "folding_state": ["ann: home > shoes > cart, 3 pages", "bob: home > hats, 2 pages"],
    "interval_join": [
        "ann: sale at minute 11 led to a stove at minute 15",
        "the same pairs as a nested loop over all clicks and orders",
    ],
    "metrics": ["parsed: 97", "broken: 3", "lines: 100"],
    "orders_to_iceberg": [
        "4000 statuses of 400 orders were written, with one failure in between",
        "the table has one row for each of 300 orders, and none for 100 returned ones",
        "3 countries, read again from the table: CH 100, DE 100, FR 100",
    ],
    "running_totals": [
        "Row(user='ann', total=5)\nRow(user='bob', total=7)\n"
        "Row(user='ann', total=6)\nRow(user='ann', total=8)\n"
    ],
    "anomaly_scores": ["Row(device='d1', value=35.0, score=2.0)"],
    "model_features": ["Row(customer=1, score=4.75)", "Row(customer=1, score=1.5)"],
    "parquet_files": [
        "failed once, restarted, and wrote 6000 orders: none is lost, none is doubled",
        "CH bought for 20059.97 in 2000 orders",
    ],
    "rescaling": [
        "subtask 0 has ['element1'], the union has 2, raw 0",
        "subtask 1 has ['element2'], the union has 2, raw 1",
        "10000 numbers were counted under 10 keys, each once",
    ],
    "sessions": [
        "ann, 09:00 to 09:14: home, shoes",
        "ann, 09:20 to 09:30: cart",
        "bob, 09:01 to 09:11: home",
        "ann, 09:00 to 09:30: home, shoes, cart, size 42",
        "ann, 09:40 to 10:10: pay",
        "ann, 10:30 to 10:40: home",
    ],
    "several_branches": [
        "job 'several branches': 3 levels, 8 exchanges",
        "> (7, 900)",
        "> total by customer 7: 1000",
        "> total by country NO: 1040",
        "smallest and largest: 40 1200",
    ],
    "state_ttl": ["alarm> cellar: water", "alarm> attic: smoke"],
    "state_evolution": [
        "1000 customers have gone on with what they had",
        "refused: cents: long cannot be read as string",
    ],
    "state_access": ["('hi', 1)", "('hi', 3)", "('hi', 7)", "('hello', 8)"],
    "checkpoints": ["failed once, restarted at number 3000, and counted 6000 numbers"],
    "streaming_word_count": ["cancelled after 3 s: JobStatus.CANCELED"],
    "temperature_alert": [
        "boiler jumped from 61.0 to 74.5 (subtask",
        "freezer jumped from -18.0 to -4.0 (subtask",
        "freezer jumped from -4.0 to -19.5 (subtask",
    ],
    "window_join": [
        "join> ann clicked on boots after 4 s",
        "join> bob clicked on boots after 11 s",
        "rate> 09:00 boots: 2 clicks, 3 views",
        "rate> 09:00 kettles: 0 clicks, 1 views",
        "rate> 09:01 boots: 1 clicks, 1 views",
    ],
    "windows": [
        "ann, 09:00 to 10:00: 3 purchases, 45.00 in all",
        "ann, 10:00 to 11:00: 1 purchases, 8.00 in all",
        "bob, 09:00 to 10:00: 2 purchases, 52.00 in all",
        "largest> 09:00 bob bought for 12.00 at 09:20",
        "last> ann: 20.00, 15.00, 8.00",
        "too late> ann bought for 5.00 at 08:10",
    ],
    "with_state": [
        "visit> ann comes for the 2nd time",
        "sessions> ('ann', ['home', 'cart', 'pay'])",
        "changes> ('ann', 'cart')",
    ],
    "word_count": ["('kelp', 1)", "('kelp', 3)", "('the', 5)"],
}
ARGUMENTS = {"streaming_word_count": ["--seconds", "3"]}


def run(path, monkeypatch, *arguments):
    """Run a program as ``__main__`` in this process."""
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")


def in_process():
    programs = (path for path in EXAMPLES.glob("[!_]*.py") if path.stem not in ELSEWHERE)
    return sorted(path for path in programs if path != DEMO)


@pytest.mark.spark
@pytest.mark.parametrize("path", in_process(), ids=lambda path: path.stem)
def test_example(path, spark, monkeypatch, capsys):
    run(path, monkeypatch, *ARGUMENTS.get(path.stem, []))
    output = capsys.readouterr().out
    missing = [text for text in EXPECTED.get(path.stem, []) if text not in output]
    assert not missing, output


@pytest.mark.parametrize("quota", [7, 1000])
def test_running_totals_of_many_batches(quota):
    example = runpy.run_path(str(EXAMPLES / "running_totals.py"))
    orders = [(f"u{n * n % 7}", n % 11 - 3) for n in range(500)]
    expected, totals = [], Counter()
    for user, amount in orders:
        totals[user] += amount
        expected.append((user, totals[user]))
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64())])
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    rows = env.from_collection(orders).to_batches(schema).key_by("user")
    found = rows.process_batches(example["RunningTotal"](), example["TOTALS"]).map(tuple)
    with LocalExecutor(found, quota=quota) as run:
        run.run_to_end()
        assert run.records == expected


@pytest.mark.spark
def test_count_window_average_gives_nothing_else(spark, monkeypatch, capsys):
    run(EXAMPLES / "count_window_average.py", monkeypatch)
    assert capsys.readouterr().out.splitlines() == ["(1, 4)", "(1, 5)"]


@pytest.mark.spark
def test_word_count_from_files_to_files(spark, monkeypatch, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a b a\nb\n")
    (tmp_path / "in" / "two.txt").write_text("a")
    output = tmp_path / "out"
    arguments = ["--input", str(tmp_path / "in"), "--output", str(output)]
    run(EXAMPLES / "word_count.py", monkeypatch, *arguments)
    files = [file for file in output.rglob("*") if file.is_file()]
    lines = sorted(line for file in files for line in file.read_text().splitlines())
    assert lines == ["('a', 1)", "('a', 2)", "('a', 3)", "('b', 1)", "('b', 2)"]


@pytest.mark.spark
def test_the_demonstration_as_a_user_starts_it():
    done = subprocess.run(
        [sys.executable, str(DEMO), "--orders", "40000", "--customers", "500"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        env={**os.environ, "TERM": "dumb"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a worker process was killed" in done.stdout
    assert "nothing lost, nothing counted twice" in done.stdout


def test_the_demonstration_notices_what_is_wrong():
    demo = runpy.run_path(str(DEMO))
    account, differences = demo["Account"], demo["differences"]
    first, second = account("c", 1, 10, 10, 10, 0, 0, 0), account("c", 2, 30, 20, 10, 20, 0, 0)
    other = account("c", 2, 31, 20, 10, 20, 0, 0)
    expected = {"c": second}
    assert list(differences({"c": [first, second]}, expected)) == []
    assert "2 orders were counted as [1]" in next(differences({"c": [first]}, expected))
    assert "as [1, 1, 2]" in next(differences({"c": [first, first, second]}, expected))
    third = account("c", 3, 50, 20, 10, 40, 0, 0)
    assert "as [1, 2, 3]" in next(differences({"c": [first, second, third]}, expected))
    assert "found" in next(differences({"c": [first, other]}, expected))
    assert "as [1, 2, 2]" in next(differences({"c": [first, second, other]}, expected))
    assert "counted as []" in next(differences({}, expected))
    assert "no orders" in next(differences({"c": [first, second], "d": [first]}, expected))


def test_every_expectation_is_of_an_example():
    names = {path.stem for path in in_process()}
    assert EXPECTED.keys() <= names
    assert ARGUMENTS.keys() <= names
    assert all((EXAMPLES / f"{name}.py").exists() for name in ELSEWHERE)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_every_example_says_what_it_shows(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith('"""')
    assert lines[0].rstrip('"').endswith(".")
