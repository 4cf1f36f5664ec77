"""The pictures of results, with made-up figures; timings decide nothing here."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cli
from benchmarks.environments import ENVIRONMENTS
from benchmarks.peers.command import SUITE
from benchmarks.pictures.bars import draw_bars
from benchmarks.pictures.command import draw, update_docs
from benchmarks.pictures.curves import draw_curves
from benchmarks.pictures.figures import Comparison, Figures, Point, Run
from benchmarks.pictures.page import BEGIN, END, filled, written
from benchmarks.pictures.results import NAMES, figures_of
from benchmarks.pictures.svg import DARK, LIGHT
from benchmarks.words.data import Totals, checked, make
from benchmarks.workloads import NEXMARK_QUERIES

ROOT = Path(cli.__file__).parent.parent
FAST = Comparison("peers", "map <1>", "Bytewax", 30.0, 10.0, "/s", 3.0, bar=1.3)
SLOW = Comparison("peers", "count", "Bytewax", 5.0, 10.0, "/s", 0.5, bar=1.3, run=Run("2026-01-02"))
POINTS = (Point("resident", 1000, 1.0, None), Point("epochs", 1000, 100.0, 300.0))


def line(**given: Any) -> dict[str, Any]:
    row = {"work": "w", "text": "t", "unit": "/s", "of": "holdfast", "by": "quix", "at_most": None}
    row |= {"times_at_least": 5.0, "times_at_most": None} | given
    times = {"median": 4.0, "lowest": 2.0, "highest": 8.0} if row["by"] else None
    return {"row": row, "value": 4.0, "other": 1.0, "ratio": times}


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter() if each.tag.endswith("text")]


def test_the_suite_of_peers_agrees_with_itself() -> None:
    assert {row.work for row in SUITE.rows} == set(SUITE.works)
    for row in SUITE.rows:
        sides = {side.name: side for side in SUITE.works[row.work].sides}
        assert {row.of} | ({row.by} - {""}) <= set(sides)
        for side in sides.values():
            assert (ROOT / f"{side.program.module.replace('.', '/')}.py").is_file()
            assert side.engine or (side.program.environment in ENVIRONMENTS and side.name in NAMES)


def test_each_query_is_compared_with_flink_sql_once() -> None:
    rows = [row for row in SUITE.rows if row.by == "nexmark-flink-sql"]
    queries = [row.figures[0] for row in rows if len(row.figures) == 1]
    assert queries == list(NEXMARK_QUERIES)
    (mean,) = (row for row in rows if len(row.figures) > 1)
    assert {mean.work, *mean.more} == {row.work for row in rows}


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_bars_say_what_they_show(theme: Any) -> None:
    found = texts(draw_bars("title", [FAST, SLOW], "against", theme))
    assert {"title", "Bytewax", "map <1>", "count", "3.00 ×", "0.50 ×"} <= set(found)


def test_curves_leave_out_what_was_not_measured() -> None:
    svg = draw_curves("title", POINTS, LIGHT)
    assert "resident engine, p50" in texts(svg)
    assert "resident engine, p99" not in texts(svg)
    assert svg.count("<circle") == 3


def test_lines_of_rounds() -> None:
    latency = line(unit="ms", times_at_least=None, times_at_most=0.5)
    memory = line(by="", unit="bytes", at_most=150.0, times_at_least=None)
    table = [line(), latency, memory, line(by="epochs")]
    rate, less, alone = figures_of({"table": table}).comparisons
    assert (rate.ratio, rate.bar, rate.picture, rate.reached) == (4.0, 5.0, "peers", False)
    assert (less.ratio, less.lowest, less.highest, less.bar) == (0.25, 0.125, 0.5, 2.0)
    assert (alone.ratio, alone.bar, alone.reached, alone.picture) == (None, 150.0, True, "")


def test_queries_beside_peers_are_in_a_picture_of_their_own() -> None:
    table = [line(text="query 5", by="nexmark-flink-sql"), line(by="pathway")]
    query, other = figures_of({"table": table}).comparisons
    assert (query.picture, query.work) == ("nexmark", "query 5")
    assert query.against == "Flink SQL 2.3, on the JVM"
    assert other.picture == "peers"


def test_points_are_medians_of_rounds() -> None:
    rounds = [
        {"resident": {"measurement": {"figures": {"at_5000_p50": value, "at_5000_p99": 9.0}}}}
        for value in (3.0, 1.0, 2.0)
    ]
    (point,) = figures_of({"table": [], "rounds": {"latency-rates": rounds}}).points
    assert (point.engine, point.rate, point.p50, point.p99) == ("resident", 5000.0, 2.0, 9.0)


def test_results_of_workloads() -> None:
    results = [
        {"workload": work, "program": program, "measurement": {"warm_rate": rate, "figures": {}}}
        for work, program, rate in (
            ("stateless_map", "holdfast", 20.0),
            ("stateless_map", "bytewax", 10.0),
        )
    ]
    (found,) = figures_of({"results": results}).comparisons
    assert (found.work, found.ratio, found.bar) == ("stateless map", 2.0, 1.3)
    assert figures_of({"results": results, "settings": {"quick": True}}) == Figures()


def test_a_peer_is_compared_with_the_form_of_a_query_that_it_has() -> None:
    ours = {"q5": 90.0, "q5 in columns": 90.0, "q5 by record": 30.0}
    rates = {"holdfast": ours, "flink-sql": {"q5": 60.0}, "pyflink": {"q5": 1.0}}
    results = [
        {"workload": "nexmark", "program": f"nexmark-{name}", "measurement": {"figures": figures}}
        for name, figures in rates.items()
    ]
    found = figures_of({"results": results}).comparisons
    assert [(each.ratio, each.bar) for each in found] == [(1.5, 1.0), (30.0, 25)]


def test_newer_figures_take_the_place_of_older_ones(tmp_path: Path) -> None:
    newer = Comparison("peers", "count", "Bytewax", 20.0, 10.0, "/s", 2.0)
    both = Figures((FAST, SLOW), POINTS).merged(Figures((newer,), (Point("epochs", 5, 1.0, 1.0),)))
    assert both.comparisons == (FAST, newer)
    assert [(point.engine, point.rate) for point in both.points] == [
        ("resident", 1000),
        ("epochs", 5),
    ]
    both.write(tmp_path / "figures.json")
    assert Figures.read(tmp_path / "figures.json") == both


def test_of_an_old_comparison_only_the_ratio_may_be_known(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Title\n\n{BEGIN}\n{END}\n", "utf-8")
    old = Comparison("", "count", "epochs engine", None, None, "/s", 1.144, 1.11, 1.18, 1.3)
    update_docs(Figures((old,)), tmp_path)
    text = page.read_text("utf-8")
    assert "- **count**: 1.14 × epochs engine, bar ≥ 1.3." in text
    assert "| count | epochs engine |  |  | **1.14 (1.11 to 1.18)** | ≥ 1.3 |" in text
    assert Figures.read(tmp_path / "benchmarks.json").comparisons == (old,)


def test_the_page_says_what_is_slower(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Title\n\n{BEGIN}\nyesterday\n{END}\n", "utf-8")
    update_docs(Figures((FAST, SLOW), POINTS), tmp_path)
    text = page.read_text("utf-8")
    assert "- **count**: 0.50 × Bytewax, bar ≥ 1.3." in text
    assert "yesterday" not in text
    assert (tmp_path / "images/benchmarks/latency-dark.svg").exists()
    with pytest.raises(ValueError, match="the page has no place for figures"):
        filled("nothing", Figures())


def test_the_pictures_of_the_docs_are_those_of_their_figures(tmp_path: Path) -> None:
    docs = ROOT / "docs"
    figures = Figures.read(docs / "benchmarks.json")
    assert written(figures) in (docs / "benchmarks.md").read_text("utf-8")
    for path in draw(figures, tmp_path):
        kept = docs / "images" / "benchmarks" / path.name
        assert kept.read_text("utf-8") == path.read_text("utf-8"), path.name


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["draw", "no/such.json"]) == 1
    assert "there is no file no/such.json" in capsys.readouterr().err


def test_words_and_what_they_come_to(tmp_path: Path) -> None:
    words = make(1000, tmp_path)
    lines = [line for path in words.directory.iterdir() for line in path.read_text().split()]
    counts = [lines.count(word) for word in set(lines)]
    assert words.expected == Totals(1000, sum(count * count for count in counts))
    assert make(1000, tmp_path) == words
    with pytest.raises(SystemExit, match="wrong result"):
        checked(Totals(1, 1), words.expected, [])
