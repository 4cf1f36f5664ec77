"""Reads the files that the commands write to ``.bench`` as figures for pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.pictures.figures import Comparison, Figures, Point, Run
from benchmarks.workloads import BARS, NEXMARK, NEXMARK_QUERIES, SIDE_BY_SIDE

__all__ = ["figures_of", "read"]

#: What peers are called.
NAMES = {
    "bytewax": "Bytewax 0.21, recovery, 2 processes",
    "nexmark-flink-sql": "Flink SQL 2.3, on the JVM",
    "nexmark-pyflink": "PyFlink 2.3 DataStream",
    "pathway": "Pathway 0.33",
    "pyflink": "PyFlink 2.3, tuned",
    "pyflink-plain": "PyFlink 2.3, threads, the same program",
    "pyflink-process": "PyFlink 2.3, processes",
    "pyflink-thread": "PyFlink 2.3, tuned",
    "pyspark": "PySpark 4.3 transformWithState",
    "quix": "Quix Streams 3.28, changelog on",
    "spark-real-time": "Spark's real-time mode",
}
_SHARED = ("keyed_count", "word_count", "branches", "stateless_map")
#: Of figures with these units, less is better.
_LESS = ("ms", "s", "MB", "bytes")


def read(path: Path) -> Figures:
    """Return the figures of a file."""
    return figures_of(json.loads(path.read_text("utf-8")))


def figures_of(data: dict[str, Any]) -> Figures:
    """Return the figures of what one of the commands wrote; nothing for a quick run."""
    run = _run(data)
    if data.get("settings", {}).get("quick"):
        return Figures()
    if "table" in data:
        rounds = data.get("rounds", {}).get("latency-rates", [])
        return Figures(tuple(_lines(data["table"], run)), tuple(_points(rounds, run)))
    if "results" in data:
        return Figures(tuple(_results(data["results"], run)))
    return Figures()


def _run(data: dict[str, Any]) -> Run:
    machine = data.get("machine", {})
    parts = [f"{machine.get('cores', '?')} cores"]
    if "memory_gb" in machine:
        parts.append(f"{machine['memory_gb']} GB")
    if "python" in machine:
        parts.append(f"Python {machine['python']}")
    load = machine.get("load_before")
    rounded = None if load is None else round(load, 1)
    return Run(data.get("date", ""), data.get("commit", ""), ", ".join(parts), rounded)


def _lines(table: list[dict[str, Any]], run: Run) -> Iterator[Comparison]:
    """The lines of commands that run in rounds; of two engines, only what peers are in."""
    for line in table:
        row, times = line["row"], line["ratio"]
        if line["value"] is None or (row["by"] == "epochs") or (row["by"] and times is None):
            continue
        if not _picture(row["by"]) and not (row["times_at_least"] or row["by"] == ""):
            continue
        ratios = [times[name] for name in ("median", "lowest", "highest")] if times else []
        bar = row["times_at_least"]
        if row["unit"] in _LESS and ratios:
            ratios = [1 / ratios[0], 1 / ratios[2], 1 / ratios[1]]
            bar = 1 / row["times_at_most"] if row["times_at_most"] else None
        yield Comparison(
            _picture(row["by"]),
            row["text"],
            NAMES.get(row["by"], row["by"]),
            line["value"],
            line["other"],
            row["unit"],
            *(ratios or [None, None, None]),
            bar=bar if ratios else row["at_most"],
            run=run,
        )


def _picture(by: str) -> str:
    """The picture in which Holdfast is compared with a peer; none with itself."""
    if by in NEXMARK:
        return "nexmark"
    return "peers" if by in NAMES else ""


def _points(rounds: list[dict[str, Any]], run: Run) -> Iterator[Point]:
    """The medians of the rounds, by engine and rate."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for sides in rounds:
        for engine, result in sides.items():
            for name, value in ((result["measurement"] or {}).get("figures") or {}).items():
                _, rate, percentile = name.split("_")
                found.setdefault((engine, int(rate)), {}).setdefault(percentile, []).append(value)
    for (engine, rate), values in found.items():
        yield Point(engine, float(rate), _middle(values["p50"]), _middle(values["p99"]), run)


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _results(results: list[dict[str, Any]], run: Run) -> Iterator[Comparison]:
    """The workloads that Holdfast shares with peers, and the queries of NEXMark."""
    by_name = {(each["workload"], each["program"]): each["measurement"] for each in results}

    def pair(
        picture: str, work: str, text: str, sides: tuple[str, str], name: str, other: str = ""
    ) -> Any:
        names = (name, other or name)
        values = [
            _figure(by_name.get((work, side)), figure)
            for side, figure in zip(sides, names, strict=True)
        ]
        if values[0] and values[1]:
            against, bar = NAMES[sides[1]], _bar(work, sides, name)
            ratio = values[0] / values[1]
            yield Comparison(picture, text, against, *values, "/s", ratio, bar=bar, run=run)

    yield from _each(pair)


def _each(pair: Callable[..., Iterator[Comparison]]) -> Iterator[Comparison]:
    ours, *peers = SIDE_BY_SIDE
    for work in _SHARED:
        for peer in peers:
            yield from pair("workloads", work, work.replace("_", " "), (ours, peer), "warm_rate")
    ours, sql, pyflink = NEXMARK
    for query in NEXMARK_QUERIES:
        text = f"query {query[1:]}"
        yield from pair("nexmark", "nexmark", text, (ours, sql), query)
    for query in NEXMARK_QUERIES:
        # the same program on both, so not the form in columns
        text, figure = f"query {query[1:]}", f"{query} by record"
        yield from pair("nexmark", "nexmark", text, (ours, pyflink), figure, query)


def _figure(measurement: dict[str, Any] | None, name: str) -> float | None:
    if measurement is None:
        return None
    value = measurement["figures"].get(name, measurement.get(name))
    return float(value) if value else None


def _bar(work: str, sides: tuple[str, str], figure: str) -> float | None:
    wanted = (work, *sides, figure)
    found = (bar for bar in BARS if (bar.workload, bar.program, bar.by, bar.figure) == wanted)
    return next((bar.at_least for bar in found), None)
