"""The part of the documentation's page that is written by the command: tables, and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.pictures.figures import Comparison, Figures, Run

__all__ = ["BEGIN", "END", "PICTURES", "filled", "written"]

BEGIN = "<!-- written by make bench ARGS=draw: begin -->"
END = "<!-- written by make bench ARGS=draw: end -->"

#: By name of a picture: its title, and whether its groups are works ("work") or peers ("against").
PICTURES = {
    "peers": ("Holdfast beside its peers", "against"),
    "workloads": ("The same work on several systems", "work"),
    "nexmark": ("NEXMark, query by query", "against"),
}
LATENCY = "latency"
LATENCY_TITLE = "Latency by rate: from the source to the sink, through keyed state"


def filled(page: str, figures: Figures) -> str:
    """Return the page with its written part replaced.

    Raises:
        ValueError: when the page does not have the two marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"the page has no place for figures; put these two lines there: {BEGIN}, {END}"
        raise ValueError(message)
    return f"{before}{BEGIN}\n\n{written(figures)}\n{END}{after}"


def written(figures: Figures) -> str:
    """Return the text between the marks."""
    lines: list[str] = ["## Slower than a peer, or below its bar", ""]
    lines += _slower(figures.comparisons)
    for name, (title, _) in PICTURES.items():
        if found := figures.of(name):
            lines += [f"## {title}", "", *_picture(name, title), *_table(found)]
    if figures.points:
        lines += [f"## {LATENCY_TITLE.partition(':')[0]}", "", *_picture(LATENCY, LATENCY_TITLE)]
        lines += _latencies(figures)
    if others := figures.of(""):
        lines += ["## Growth and memory", "", *_table(others)]
    return "\n".join(lines)


def _slower(comparisons: Sequence[Comparison]) -> list[str]:
    bad = [each for each in comparisons if each.slower or not each.reached]
    if not bad:
        return ["Nothing of what was measured.", ""]
    return [*(f"- {_sentence(each)}" for each in bad), ""]


def _sentence(each: Comparison) -> str:
    """Say what is slower, or how far a bar is missed."""
    bar = "" if each.bar is None else f"bar {_bar(each)}"
    if each.ratio is None:
        return f"**{each.work}**: {_number(each.ours, each.unit)} ({bar})."
    beside = f"{each.ratio:.2f} × {each.against}" if each.against else f"{each.ratio:.2f}"
    missed = f", {bar}" if bar and not each.reached else ""
    return f"**{each.work}**: {beside}{missed}."


def _picture(name: str, title: str) -> list[str]:
    folder = "images/benchmarks"
    return [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">',
        f'  <img alt="{title}" src="{folder}/{name}-light.svg">',
        "</picture>",
        "",
    ]


def _table(found: Sequence[Comparison]) -> Iterator[str]:
    yield "| work | beside | Holdfast | the other | ratio | bar | measured |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for each in found:
        figures = (_number(value, each.unit) for value in (each.ours, each.theirs))
        cells = (each.work, each.against, *figures, _ratio(each))
        yield f"| {' | '.join(cells)} | {_bar(each)} | {_when(each.run)} |"
    yield ""


def _ratio(each: Comparison) -> str:
    if each.ratio is None:
        return ""
    text = f"{each.ratio:.2f}" if each.ratio < 10 else f"{each.ratio:.1f}"
    if each.lowest is not None and each.highest is not None and each.lowest != each.highest:
        text += f" ({each.lowest:.3g} to {each.highest:.3g})"
    return text if each.reached and not each.slower else f"**{text}**"


def _bar(each: Comparison) -> str:
    if each.bar is None:
        return ""
    return f"≤ {each.bar:g} {each.unit}" if each.ratio is None else f"≥ {each.bar:.3g}"


def _latencies(figures: Figures) -> Iterator[str]:
    yield "| engine | records per second | p50, ms | p99, ms | measured |"
    yield "| --- | ---: | ---: | ---: | --- |"
    for point in figures.points:
        cells = ("" if value is None else f"{value:,.3g}" for value in (point.p50, point.p99))
        yield f"| {point.engine} | {point.rate:,.0f} | {' | '.join(cells)} | {_when(point.run)} |"
    yield ""


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{number}{unit}" if unit == "/s" else f"{number} {unit}".rstrip()


def _when(run: Run) -> str:
    load = "" if run.load is None else f"load {run.load:g} before"
    return ", ".join(part for part in (run.date, run.commit, run.machine, load) if part)
