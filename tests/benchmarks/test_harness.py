"""The harness itself, with made-up results; timings decide nothing here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.environments import ENVIRONMENTS
from benchmarks.measure import Measurement, Meter, measured, read_marks
from benchmarks.memory import memory_now, summed
from benchmarks.nexmark.flink_sql import INSERTS
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.reference import SQL
from benchmarks.records import bootstrapped, draw, record, sentence
from benchmarks.report import as_json, judge, render, write_json
from benchmarks.runner import Result, Settings, records_for, run_program
from benchmarks.workloads import BARS, NEXMARK_QUERIES, PROGRAMS, WORKLOADS, Program


def rated(workload: str, program: str, rate: float, **figures: float) -> Result:
    measurement = Measurement(1000, 2.0, 0.5, rate / 2, rate, figures)
    return Result(workload, program, 1000, measurement)


RESULTS = [
    rated("keyed_count", "holdfast", 200_000.0),
    rated("keyed_count", "pyspark", 4_000.0),
    rated("keyed_count", "bytewax", 100_000.0),
    Result("keyed_count", "pyflink-thread", 1000, failure="exit code 1: no Java"),
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(root=Path.cwd(), home=tmp_path)


# --- The command line


def test_everything_runs_unless_told() -> None:
    options = cli.parse([])
    chosen = cli.selected(options.only, options.peers)
    assert len(chosen) == sum(len(workload.programs) for workload in WORKLOADS.values())


def test_names_between_commas() -> None:
    options = cli.parse(["--only", "keyed_count,branches", "--peers", "holdfast, bytewax"])
    chosen = cli.selected(options.only, options.peers)
    assert [(workload.name, program.name) for workload, program in chosen] == [
        ("keyed_count", "holdfast"),
        ("keyed_count", "bytewax"),
        ("branches", "holdfast"),
        ("branches", "bytewax"),
    ]


def test_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parse(["--only", "keyed_cuont"])
    assert "no workload 'keyed_cuont'; there are: keyed_count" in capsys.readouterr().err


def test_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list", "--records", "1000", "--only", "keyed_count"]) == 0
    shown = capsys.readouterr().out
    assert "1,000 records" in shown
    assert "times Bytewax, two processes: ≥ 2.5" in shown


def test_slow_systems_get_their_share(settings: Settings) -> None:
    workload, slow = WORKLOADS["keyed_count"], PROGRAMS["pyspark"]
    assert records_for(workload, slow, settings) == round(workload.records * slow.share)
    assert slow.share < 1


def test_definitions_agree() -> None:
    for workload in WORKLOADS.values():
        assert set(workload.programs) <= set(PROGRAMS)
    for bar in BARS:
        assert {bar.program, bar.by or bar.program} <= set(WORKLOADS[bar.workload].programs)
    for program in PROGRAMS.values():
        assert program.environment is None or program.environment in ENVIRONMENTS


# --- Measuring


def test_marks_of_several_meters_add_up(tmp_path: Path) -> None:
    for _ in range(2):
        meter = Meter(str(tmp_path))
        meter.add(1500)
        for _ in range(500):
            meter.tick()
        meter.close()
    marks = read_marks(str(tmp_path), per_record=2.0)
    assert [count for _, count in marks] == sorted(count for _, count in marks)
    assert marks[-1][1] == 2000


def test_warm_up_may_be_given() -> None:
    marks = [(1.0, 10.0), (2.0, 20.0), (3.0, 40.0)]
    assert measured(marks, started=0.0, warm_up=20).warm_rate == 20.0


def test_no_marks_and_no_end_are_errors() -> None:
    with pytest.raises(ValueError, match="no record came through"):
        measured([], started=0.0)
    with pytest.raises(ValueError, match="took the whole run"):
        measured([(1.0, 10.0)], started=0.0)


def test_records_come_from_their_index() -> None:
    assert record(7) == record(7)
    assert record(1, 100)[0] == f"user-{draw(1, 100)}"
    assert len({record(i)[0] for i in range(50_000)}) == pytest.approx(39_300, rel=0.02)
    assert len({bootstrapped(500)(i)[0] for i in range(500)}) == 500
    assert len(sentence(3).split()) == 8


def test_memory() -> None:
    assert summed("5 1 1024 /usr/bin/java\n6 5 2048 python3.11\n", 5).workers == 2.0
    assert memory_now().driver > 1.0


def test_a_command_that_the_jvm_starts_is_no_worker() -> None:
    listing = "5 1 1024 java\n6 5 2048 python3\n7 5 1024 stream executio\n8 6 1024 /bin/Python\n"
    assert summed(listing, 5).workers == 3.0


# --- Reporting


def test_table_shows_rates_ratios_and_failures() -> None:
    text = render(RESULTS, judge(RESULTS))
    line = next(line for line in text.splitlines() if "pyspark" in line)
    assert line.split()[:5] == ["pyspark", "1,000", "0.5", "s", "2,000"]
    assert "50.0 ×" in line
    assert "pyflink-thread: exit code 1: no Java" in text


def test_bars() -> None:
    outcomes = {verdict.text: verdict.outcome for verdict in judge(RESULTS)}
    assert outcomes == {
        "times PySpark transformWithState": "pass",
        "times PyFlink, thread mode, the same program": "not measured",
        "times PyFlink, thread mode, types declared and tuned": "not measured",
        "times Bytewax, two processes": "FAIL",
    }


def test_bar_between_two_figures_of_one_program() -> None:
    result = rated("small_epochs", "small-epochs", 0.0, last_seconds=0.3, second_seconds=0.25)
    verdict = judge([result])[0]
    assert verdict.value == pytest.approx(1.2)
    assert verdict.limit == "≤ 1.2"


def test_json_has_everything(tmp_path: Path, settings: Settings) -> None:
    path = tmp_path / "below" / "results.json"
    write_json(path, as_json(RESULTS, judge(RESULTS), settings))
    data = json.loads(path.read_text("utf-8"))
    assert data["results"][0]["measurement"]["warm_rate"] == 200_000.0
    assert data["results"][3]["failure"] == "exit code 1: no Java"
    outcomes = [bar["outcome"] for bar in data["bars"]]
    assert outcomes == ["pass", "not measured", "not measured", "FAIL"]


# --- Running


def ran(source: str, settings: Settings) -> Result:
    """Run a program that is written here."""
    (settings.home / "written_here.py").write_text(source, "utf-8")
    at = Settings(root=settings.home, home=settings.home / "bench")
    at.home.mkdir()
    program = Program("fake", "written_here")
    workload = WORKLOADS["keyed_count"]
    return run_program(Path(sys.executable), program, workload, at, lambda seconds: None)


def test_measurement_is_found_among_other_output(settings: Settings) -> None:
    line = json.dumps({"measurement": {"records": 5, "warm_rate": 7.0}})
    result = ran(f"print('hello')\nprint({line!r})\nprint('bye')", settings)
    assert result.measurement == Measurement(records=5, warm_rate=7.0)


def test_failure_is_told_in_a_line(settings: Settings) -> None:
    result = ran("raise ValueError('too bad')", settings)
    assert result.measurement is None
    assert result.failure == "exit code 1: ValueError: too bad"


# --- NEXMark


def test_queries_are_compared_one_by_one() -> None:
    results = [
        rated(
            *("nexmark", "nexmark-holdfast", 0.0),
            **{"q0": 300_000.0, "q0 by record": 250_000.0, "q0 in columns": 300_000.0},
            q8=100_000.0,
        ),
        rated("nexmark", "nexmark-flink-sql", 0.0, q0=400_000.0, q8=100_000.0),
        rated("nexmark", "nexmark-pyflink", 0.0, q0=10_000.0),
    ]
    verdicts = judge(results)
    lines = [line.split() for line in render(results, verdicts).splitlines()]
    assert ["q0", "300,000", "400,000", "10,000", "0.75", "×", "30.00", "×"] in lines
    assert ["q0", "by", "record", "250,000"] in lines
    assert ["q8", "100,000", "100,000", "1.00", "×"] in lines
    outcomes = {verdict.text: verdict.outcome for verdict in verdicts}
    assert outcomes["q0: times PyFlink DataStream"] == "pass"
    assert outcomes["q8: to Flink SQL (an aim)"] == "pass"
    assert outcomes["q1: to Flink SQL (an aim)"] == "not measured"


def test_every_query_has_its_bars() -> None:
    assert tuple(QUERIES) == NEXMARK_QUERIES == tuple(INSERTS) == tuple(SQL)


def test_workloads_may_be_named_without_an_option() -> None:
    assert cli.parse(["nexmark,branches"]).only == ["nexmark", "branches"]
