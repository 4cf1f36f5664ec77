"""The comparison of two checkouts, with made-up rates; timings decide nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cli, compare, console
from benchmarks.compare import COMPARED, parse
from benchmarks.ratios import Pair, Ratio, Run, order, overall, ratio, render
from benchmarks.sources import differing, files_of
from benchmarks.workloads import WORKLOADS

ROOT = Path(cli.__file__).parent.parent

#: Says which source it was run with, and in which order the runs were.
JOB = """
import json, os, sys
import holdfast
from benchmarks.own.rates import RATE
with open(os.environ["RUNS"], "a") as runs:
    print(holdfast.NAME, *sys.argv[1:4], file=runs)
print(json.dumps({"measurement": {"warm_rate": RATE, "figures": {"q5": RATE / 2}}}))
"""


def checkout(root: Path, rate: float, job: str = JOB) -> Path:
    """Make a directory that looks like a checkout; its programs measure what is given here."""
    files = {
        "src/holdfast/__init__.py": f"NAME = {root.name!r}",
        "benchmarks/__init__.py": "",
        "benchmarks/own/rates.py": f"RATE = {rate!r}",
        "benchmarks/own/throughput_job.py": job,
        "benchmarks/nexmark/job.py": job,
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    return root


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return checkout(tmp_path / "old", 100.0)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return checkout(tmp_path / "new", 150.0)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs write which of them ran; results go beside it."""
    for module in (compare, console):
        monkeypatch.setattr(module, "HOME", tmp_path / "bench")
    monkeypatch.setenv("RUNS", str(tmp_path / "runs.txt"))
    return tmp_path / "runs.txt"


def pair(before: float, after: float, before_mb: float = 0.0, after_mb: float = 0.0) -> Pair:
    return Pair(1, "before", Run(before, before_mb), Run(after, after_mb))


# --- Ratios


def test_neither_checkout_is_always_the_first() -> None:
    sequence = [side for number in range(4) for side in order(number)]
    assert sequence == ["before", "after", "after", "before"] * 2


def test_a_ratio_is_one_of_neighbours_and_drift_cancels() -> None:
    """The machine becomes ten times as slow in the meantime."""
    pairs = [pair(1000, 1100), pair(300, 330), pair(100, 110)]
    measured = ratio([each.rate for each in pairs])
    assert measured is not None
    assert measured.median == pytest.approx(1.1)
    assert (measured.lowest, measured.highest) == pytest.approx((1.1, 1.1))


def test_one_bad_run_does_not_move_the_median() -> None:
    assert ratio([1.1, 0.2, 1.1]) == Ratio(pytest.approx(1.1), 0.2, 1.1)


def test_exchanging_the_checkouts_gives_the_inverse() -> None:
    forth, back = ratio([0.5, 0.8, 1.25, 3.0]), ratio([2.0, 1.25, 0.8, 1 / 3])
    assert forth is not None
    assert back is not None
    assert forth.median * back.median == pytest.approx(1)


def test_geometric_mean_over_the_workloads() -> None:
    assert overall([[2.0, 4.0, 4.0], [1.0, 1.0, 1.0]]) == Ratio(
        pytest.approx(2.0), pytest.approx(2**0.5), pytest.approx(2.0)
    )


def test_a_round_that_was_not_completed_is_not_in_the_spread() -> None:
    whole = overall([[4.0, 4.0, 100.0], [1.0, 1.0]])
    assert whole == Ratio(pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0))


def test_what_was_not_measured_has_no_ratio() -> None:
    assert pair(1, 1, before_mb=400).memory is None
    assert ratio([None, None]) is None
    assert overall([[1.0], [None]]) is None
    assert overall([]) is None


def test_tables_are_markdown() -> None:
    text = render({"keyed_count": [pair(1000, 1100, 400, 300)], "orders": [pair(100, 100, 50, 50)]})
    summary, single = ([line.split("|") for line in t.splitlines()] for t in text.split("\n\n"))
    cells = [[cell.strip() for cell in line[1:-1]] for line in summary]
    assert set("".join(cells[1])) == {"-"}
    assert cells[2][:5] == ["keyed_count", "1,000", "1,100", "1.100 ×", "1.100 to 1.100"]
    assert cells[2][5:] == ["400", "300", "0.750 ×", "0.750 to 0.750"]
    assert cells[4][:5] == ["geometric mean", "", "", "1.049 ×", "1.049 to 1.049"]
    assert cells[4][5:] == ["", "", "0.866 ×", "0.866 to 0.866"]
    assert [cell.strip() for cell in single[2][1:5]] == ["keyed_count", "1", "before", "1,000"]
    assert len({len(line) for line in text.split("\n\n")[0].splitlines()}) == 1


# --- The command line


def test_defaults() -> None:
    options = parse(["--before", str(ROOT)])
    assert options.after == options.before == ROOT
    assert options.only == ["keyed_count", "orders", "nexmark0", "nexmark5", "nexmark18"]
    assert options.rounds % 2 == 0
    assert options.scale == 1


def test_a_workload_is_run_once_a_round_however_often_it_is_named() -> None:
    options = parse(["--before", str(ROOT), "--only", "orders,nexmark4,orders"])
    assert options.only == ["orders", "nexmark4"]


def test_every_workload_exists_in_this_checkout() -> None:
    assert parse(["--before", str(ROOT), "--only", ",".join(COMPARED)]).only == list(COMPARED)
    assert {"word_count", "branches", "nexmark9"} <= set(COMPARED)


def test_scale_is_one_of_records() -> None:
    options = parse(["--before", str(ROOT), "--scale", "0.25"])
    settings = COMPARED["nexmark5"].settings(ROOT, options)
    assert settings.records == WORKLOADS["nexmark"].records / 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --before"),
        (["--before", "/"], "/ is not a checkout of Holdfast: it has no src/holdfast/__init__.py"),
        (["--before", ".", "--only", "keyed_cuont"], "no workload 'keyed_cuont'; there are: keyed"),
        (["--before", ".", "--only", ","], "--only names no workload; there are: keyed_count"),
        (["--before", ".", "--rounds", "0"], "argument --rounds: '0' is not a number above zero"),
        (["--before", ".", "--rounds", "2.5"], "'2.5' is not a number above zero"),
        (["--before", ".", "--scale", "nan"], "argument --scale: 'nan' is not a number above zero"),
        (["--before", ".", "--scale", "-1"], "argument --scale: '-1' is not a number above zero"),
    ],
)
def test_wrong_arguments_are_told(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        cli.main(["compare", *arguments])
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_workload_that_one_checkout_does_not_have_is_told(
    before: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(["--before", str(before), "--only", "orders"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"{before} has no benchmarks/orders/job.py: leave orders out of --only")


# --- Runs


def test_each_checkout_runs_its_own_source_and_programs_in_turn(
    before: Path, after: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--before", str(before), "--after", str(after), "--rounds", "2"]
    assert cli.main(["compare", *arguments, "--only", "keyed_count,nexmark5"]) == 0
    assert [line.split()[:2] for line in runs.read_text().splitlines()] == [
        # the warm-up
        *(["new", "keyed_count"], ["old", "keyed_count"], ["new", "nexmark"], ["old", "nexmark"]),
        *(["old", "keyed_count"], ["new", "keyed_count"], ["old", "nexmark"], ["new", "nexmark"]),
        *(["new", "keyed_count"], ["old", "keyed_count"], ["new", "nexmark"], ["old", "nexmark"]),
    ]
    shown = capsys.readouterr()
    assert f"before: {before}\nafter: {after}\nload average: " in shown.out
    rows = [[cell.strip() for cell in line.split("|")] for line in shown.out.splitlines()]
    assert ["", "nexmark5", "50", "75", "1.500 ×", "1.500 to 1.500"] in [row[:6] for row in rows]
    assert ["", "geometric mean", "", "", "1.500 ×"] in [row[:5] for row in rows]
    assert "note: the benchmark programs differ: benchmarks/own/rates.py;" in shown.err
    saved = json.loads((compare.HOME / "compare.json").read_text("utf-8"))
    assert [each["first"] for each in saved["pairs"]["keyed_count"]] == ["before", "after"]


def test_a_failed_job_is_told_with_its_last_lines(
    tmp_path: Path, before: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = checkout(tmp_path / "new", 0.0, "raise ValueError('too bad')")
    arguments = ["--before", str(before), "--after", str(broken), "--only", "keyed_count"]
    assert cli.main(["compare", *arguments]) == 1
    shown = capsys.readouterr()
    error = f"error: keyed_count failed in after ({broken}): exit code 1: ValueError: too bad"
    lines = shown.err.splitlines()
    assert lines[lines.index(error) + 1].startswith("  Traceback")
    assert lines[-1] == "  ValueError: too bad"
    assert shown.out == ""


def test_a_query_that_failed_in_its_program_is_told(
    before: Path, after: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--before", str(before), "--after", str(after), "--only", "nexmark7"]
    assert cli.main(["compare", *arguments]) == 1
    assert f"nexmark7 failed in after ({after}): it measured no q7" in capsys.readouterr().err


def test_pairs_before_a_failure_are_shown(
    tmp_path: Path, before: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until = 'import os\nif open(os.environ["RUNS"]).read().count("new") == 2: raise SystemExit(3)\n'
    runs.touch()
    breaks = checkout(tmp_path / "new", 50.0, until + JOB)
    arguments = ["--before", str(before), "--after", str(breaks), "--only", "keyed_count"]
    assert cli.main(["compare", *arguments]) == 1
    assert "0.500 ×" in capsys.readouterr().out


# --- What programs are made of


def test_files_of_a_program_are_those_it_imports() -> None:
    files = files_of("benchmarks.orders.job", ROOT)
    assert {"benchmarks/measure.py", "examples/orders/pipeline.py"} <= files
    assert "benchmarks/own/rest_job.py" not in files


def test_programs_that_differ(before: Path, after: Path) -> None:
    module = "benchmarks.own.throughput_job"
    assert differing([module], before, before) == []
    assert differing([module], before, after) == ["benchmarks/own/rates.py"]
    (after / "benchmarks/own/throughput_job.py").write_text("not python", "utf-8")
    assert len(differing([module], before, after)) == 2
