"""The comparison of the two engines, with made-up figures; timings decide nothing here."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.engines.command import SUITE
from benchmarks.engines.gap_job import figures_of
from benchmarks.engines.jobs import CountMade
from benchmarks.engines.latency_job import highest_rate
from benchmarks.engines.parts import ENGINES, PARTS, ROWS, WORKS
from benchmarks.engines.percentiles import Seen, Times, check, latency_figures, read_times
from benchmarks.engines.rate_job import OUTPUTS
from benchmarks.engines.restart_job import Results, counts, first_after, read_results
from benchmarks.engines.slow_sink_job import gapless, growth
from benchmarks.environments import ENVIRONMENTS
from benchmarks.kafka.load import Result as Trip
from benchmarks.kafka.load import wrong
from benchmarks.measure import Measurement
from benchmarks.own.throughput_job import branches
from benchmarks.processes import JVM, WORKERS, Samples, sampled, usage_of
from benchmarks.records import draw, expected_total
from benchmarks.rounds import command
from benchmarks.rounds.command import parse, size_of, turns
from benchmarks.rounds.suite import Row
from benchmarks.rounds.table import lines_of, render
from benchmarks.runner import Result
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.functions import SinkFunction
from holdfast.testing import LocalExecutor

ROOT = Path(cli.__file__).parent.parent

#: Says on which engine it ran.
JOB = """
import json, os, sys
engine = os.environ.get("HOLDFAST_ENGINE", "none")
with open(os.environ["RUNS"], "a") as runs:
    print(engine, *sys.argv[1:4], file=runs)
if engine == os.environ.get("BREAKS"):
    raise SystemExit("Error: wrong result: the number of results is 1, expected 2")
rate = {"resident": 150.0, "epochs": 100.0}[engine]
print(json.dumps({"measurement": {"warm_rate": rate, "figures": {"epoch_ms": rate}}}))
"""


def measured(**figures: float) -> Result:
    return Result("work", "side", 1, Measurement(figures=figures))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that measure what is given here, and where they write which of them ran."""
    for module in ("benchmarks/engines/rate_job.py", "benchmarks/engines/small_epochs_job.py"):
        path = tmp_path / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(JOB, "utf-8")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "HOME", tmp_path / "bench")
    monkeypatch.setenv("RUNS", str(tmp_path / "runs.txt"))
    monkeypatch.delenv("HOLDFAST_ENGINE", raising=False)
    return tmp_path / "runs.txt"


# --- Definitions and the command line


def test_definitions_agree() -> None:
    for row in ROWS:
        sides = {side.name for side in WORKS[row.work].sides}
        assert {row.of} | ({row.by} - {""}) <= sides
    for work in WORKS.values():
        assert work.size <= work.full
        for side in work.sides:
            assert side.engine in ("", *ENGINES)
            assert (ROOT / f"{side.program.module.replace('.', '/')}.py").is_file()
            assert side.engine or side.program.environment in ENVIRONMENTS


def test_every_work_has_a_row() -> None:
    assert {row.work for row in ROWS} == set(WORKS)


def test_parts_are_chosen_by_name() -> None:
    assert [work.name for work in parse(SUITE, ["gap,idle", "restart"]).works] == [
        "gap",
        "restart",
        "idle",
        "idle-checkpoints",
    ]
    assert {work.part for work in parse(SUITE, []).works} == set(PARTS)
    assert [work.name for work in parse(SUITE, ["--only", "orders"]).works] == ["orders"]


def test_sizes() -> None:
    assert size_of(WORKS["gap"], parse(SUITE, [])) == WORKS["gap"].size
    assert size_of(WORKS["gap"], parse(SUITE, ["--full"])) == 1_000_000
    options = parse(SUITE, ["--size", "7", "--seconds", "3"])
    assert (size_of(WORKS["gap"], options), size_of(WORKS["idle"], options)) == (7, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latncy"], "no part 'latncy'; there are: latency, latency-rates, throughput"),
        (["--only", "order"], "no work 'order'; there are: latency"),
        (["--rounds", "0"], "'0' is not a whole number above zero"),
    ],
)
def test_wrong_arguments_are_told(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["engines", *arguments])
    assert message in capsys.readouterr().err


def test_list_runs_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["engines", "--list", "throughput", "--size", "1000"]) == 0
    assert "1,000 records  resident, epochs, pyflink" in capsys.readouterr().out
    assert not runs.exists()


# --- Runs


def test_engines_take_turns(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "word_count", "--size", "9", "--rounds", "2"]
    assert cli.main(["engines", *arguments, "--json", str(runs.parent / "x.json")]) == 0
    assert runs.read_text().splitlines() == [
        f"{engine} word_count --records 9"
        for engine in ("resident", "epochs", "epochs", "resident")
    ]
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if "word count" in line)
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        *("throughput", "word count", "resident", "150/s", "epochs", "100/s"),
        *("1.5", "1.5 to 1.5", "≥ 1 ×", "pass"),
    ]
    saved = json.loads((runs.parent / "x.json").read_text("utf-8"))
    assert saved["rounds"]["word_count"][1]["epochs"]["measurement"]["warm_rate"] == 100.0


def test_the_epochs_engine_gets_fewer_small_epochs(runs: Path) -> None:
    assert cli.main(["engines", "small-epochs", "--size", "1000"]) == 0
    assert runs.read_text().split("\n")[:2] == [
        "resident small_epochs --records 1000",
        "epochs small_epochs --records 10",
    ]


def test_a_wrong_result_fails_the_command(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BREAKS", "resident")
    assert cli.main(["engines", "--only", "word_count"]) == 1
    shown = capsys.readouterr().out
    assert "word_count, resident, round 1: exit code 1: Error: wrong result" in shown
    assert "not measured" in shown


def test_strict_fails_where_a_bar_is_missed(runs: Path) -> None:
    arguments = ["engines", "small-epochs"]
    assert cli.main(arguments) == 0
    assert cli.main([*arguments, "--strict"]) == 1


def test_peers_take_turns_or_do_not_run() -> None:
    work = WORKS["latency"]
    assert [side.name for side in turns(work, 0, peers=True)] == ["resident", "epochs", "pyflink"]
    assert [side.name for side in turns(work, 1, peers=True)] == ["pyflink", "epochs", "resident"]
    assert [side.name for side in turns(work, 1, peers=False)] == ["epochs", "resident"]


# --- The table


def test_ratios_are_those_of_the_same_round() -> None:
    rounds = {
        "latency": [
            {"resident": measured(p50=2.0), "epochs": measured(p50=100.0)},
            {"resident": measured(p50=20.0), "epochs": measured(p50=1000.0)},
        ]
    }
    row = Row("latency", "p50", ("p50",), "ms", at_most=10, times_at_most=0.03)
    (line,) = lines_of([row], rounds)
    assert line.value == 11.0
    assert line.ratio is not None
    assert line.ratio.median == pytest.approx(0.02)
    assert line.outcome == "FAIL"
    assert "≤ 10 ms, ≤ 0.03 ×" in render([line], WORKS)


def test_all_queries_or_no_mean() -> None:
    row = Row("nexmark", "mean", ("q0", "q1"), "/s", times_at_least=1.2)
    sides = {"resident": measured(q0=400.0, q1=100.0), "epochs": measured(q0=100.0, q1=100.0)}
    (line,) = lines_of([row], {"nexmark": [sides]})
    assert line.ratio is not None
    assert line.ratio.median == pytest.approx(2)
    assert line.outcome == "pass"
    missing = sides | {"resident": measured(q0=400.0)}
    (line,) = lines_of([row], {"nexmark": [missing]})
    assert line.outcome == "not measured"


def test_a_line_of_several_works_has_the_figures_of_all() -> None:
    row = Row("bids", "mean", ("q0", "q1"), "/s", times_at_least=1.2, more=("joins",))
    bids = {"resident": measured(q0=400.0), "epochs": measured(q0=100.0)}
    joins = {"resident": measured(q1=100.0), "epochs": measured(q1=100.0)}
    (line,) = lines_of([row], {"bids": [bids, bids], "joins": [joins]})
    assert line.ratio is not None
    assert line.ratio.median == pytest.approx(2)
    assert line.value == pytest.approx(200)
    assert lines_of([row], {"bids": [bids]}) == []


# --- What the programs compute


def test_latency_is_that_after_the_warm_up(tmp_path: Path) -> None:
    for first in (0, 1):
        times = Times()
        for number in range(first, 100, 2):
            took = 5.0 if number < 30 else 0.010
            times.note(number, 2, number + took)
        times.write(str(tmp_path))
    seen = read_times(str(tmp_path))
    assert seen.made == list(range(100))
    assert seen.total == 200
    assert latency_figures(seen, "x_") == {"x_p50": 10.0, "x_p99": 10.0, "x_max": 10.0}


def test_the_highest_rate_is_that_after_the_first_quarter() -> None:
    assert highest_rate(Seen([0, 50, 60, 65], [49, 59, 64, 80], 4)) == pytest.approx(3 / 30)


def test_a_wrong_result_ends_a_program() -> None:
    check("it", 1, 1)
    with pytest.raises(SystemExit, match="wrong result: it is 1, expected 2"):
        check("it", 1, 2)


def test_the_expected_counts_are_those_of_the_job() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_collection([(draw(index, 7), float(index)) for index in range(100)])
    with LocalExecutor(stream.key_by(lambda r: r[0]).process(CountMade())) as run:
        while not run.finished:
            run.epoch()
        assert sum(count for _, count in run.records) == expected_total(100, 7)
        assert sorted(made for made, _ in run.records) == list(range(100))


class _Tally(SinkFunction):
    def __init__(self, path: Path) -> None:
        self._path = path

    def invoke(self, value: object, context: object) -> None:
        with self._path.open("a") as file:
            file.write(".")


def test_every_result_of_the_branches_is_expected(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    branches(env, 64, lambda: _Tally(tmp_path / "tally"))
    with LocalExecutor(env) as run:
        while not run.finished:
            run.epoch()
    assert len((tmp_path / "tally").read_text()) == 64 * OUTPUTS["branches"]


def test_gaps_count_while_a_checkpoint_with_all_keys_is_taken() -> None:
    marks = [(float(second), 100.0 * second) for second in range(1, 11)]
    spans = [(0.5, 1.0), (2.5, 3.0), (4.5, 5.0), (6.5, 7.0), (9.0, 9.5)]
    one = [(2.4, 2.9), (6.6, 6.8), (8.0, 8.9)]
    other = [(2.4, 2.9), (6.7, 6.95)]
    figures = figures_of([one, other], marks, spans, keys=100)
    assert figures["gap"] == pytest.approx(0.1)
    assert figures["sink_gap"] == pytest.approx(0.25)
    # checkpoints that began at 4.5 and 6.5, each 200 records after the one before
    assert (figures["checkpoints"], figures["changed_keys"]) == (2.0, 100.0)


def test_gaps_need_a_checkpoint() -> None:
    with pytest.raises(SystemExit, match="no checkpoint among 2 could be measured"):
        figures_of([[]], [(1.0, 5.0)], [(0.0, 1.0), (2.0, 3.0)], keys=100)


def test_results_of_a_killed_sink_are_read(tmp_path: Path) -> None:
    began = time.time()
    first, second = Results(str(tmp_path)), Results(str(tmp_path))
    first.open(None)  # type: ignore[arg-type]
    first.invoke(("a", 1, 0.0), None)
    first._file.write("1700000000.5 b")  # half a line
    first._file.flush()
    killed = time.time()
    assert first_after(str(tmp_path), killed) is None
    second.open(None)  # type: ignore[arg-type]
    second.invoke(("a", 2, 0.0), None)
    second.invoke(("b", 1, 0.0), None)
    second.close()
    came = first_after(str(tmp_path), killed)
    assert came is not None
    assert began < killed < came
    assert counts(str(tmp_path)) == 3
    assert {attempt.process for attempt in read_results(str(tmp_path))} == {os.getpid()}
    first.close()


def test_counts_without_gaps() -> None:
    assert gapless([("a", 2), ("a", 1)])
    assert not gapless([("a", 1), ("a", 1)])


def test_growth_is_that_after_the_first_quarter() -> None:
    figures = growth({WORKERS: [10.0, 20.0, 20.0, 21.0, 22.0, 20.0, 20.0, 20.0]})
    assert figures["workers_growth"] == pytest.approx(1.1)


def test_counts_of_a_round_trip() -> None:
    trips = [Trip("a", count, 0.0, 0.0) for count in (2, 1, 4)]
    assert wrong(trips) == "the counts of key 'a' are [1, 2, 4]"
    assert wrong([Trip("a", 0, 0.0, 0.0)] * 3) == ""


# --- Processes


def test_processes_by_what_they_are() -> None:
    listing = "\n".join(
        [
            "-1 1 1024 00:00:01 python",
            "-2 -1 2048 00:00:02 /usr/bin/java",
            "-3 -2 4096 00:00:03 python3.11",
            "-4 -2 4096 00:00:03 stream executio",
            "-5 1 4096 00:00:03 python",
        ]
    )
    usage = usage_of(-1, listing)
    assert (usage[JVM].mb, usage[WORKERS].mb) == (2.0, 4.0)
    assert (usage[JVM].cpu, usage[WORKERS].cpu) == (2.0, 3.0)


def test_own_process_is_measured() -> None:
    with sampled(0.001) as samples:
        samples.take()
    assert samples.mb["driver"][0] > 1.0
    assert usage_of(os.getpid())["driver"].cpu > 0.0


def test_samples_of_a_part_of_the_time() -> None:
    samples = Samples(times=[1.0, 2.0, 3.0], mb={WORKERS: [5.0, 6.0, 7.0]})
    assert samples.between(1.5, 3.0, WORKERS) == [6.0, 7.0]
