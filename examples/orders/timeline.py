"""Draws what happened to the job as a page: rates, programs, checkpoints, and what went wrong."""

import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from examples.orders.progress import Checkpoint, Incident
from examples.orders.story import Life, Sample, Story

__all__ = ["draw", "open_page", "page", "write_page"]

_WIDTH, _LEFT, _RIGHT = 1000, 110, 20
#: the top and the height of each band
_RATE, _PROGRAMS, _CHECKPOINTS, _MARKS = (40, 160), (220, 26), (266, 26), (312, 26)
_HEIGHT = 370
#: gaps between two samples that are longer than this, in seconds, are not filled
_GAP = 2.0
#: what marks each kind of incident, and what it is called
_KINDS = {
    "failed": ("✕", "a function failed"),
    "continued": ("▶", "continued from a checkpoint"),
    "killed": ("☠", "kill -9 of the driver"),
    "rescaled": ("⇄", "rescaled"),
}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The order system: what happened</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d2733; --dim: #64717f; --line: #d5dbe1;
  --back: #fff; --rate: #2a78b8; --life: #8aa4b8; --good: #2e8b57; --bad: #c0392b; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e4e9ee; --dim: #94a1ae; --line: #35414d;
  --back: #12181f; --rate: #5aa9e6; --life: #5a7286; --good: #4cc38a; --bad: #ff7b6b; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 1040px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; }}
svg {{ width: 100%; height: auto; }}
svg text {{ font: 12px system-ui, sans-serif; fill: var(--dim); }}
svg .mark {{ font-size: 16px; fill: var(--ink); }}
svg .bad {{ fill: var(--bad); }}
td {{ padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; }}
td:first-child {{ color: var(--dim); font-variant-numeric: tabular-nums; }}
</style></head><body>
<h1>The order system: what happened</h1>
<p>{summary}</p>
{svg}
<table>{rows}</table>
</body></html>
"""


def page(story: Story) -> str:
    """The picture, and a list of what it shows, as an HTML page."""
    began = _began(story)
    rows = "".join(
        f"<tr><td>{incident.time - began:.1f} s</td>"
        f"<td>{_KINDS.get(incident.kind, ('', ''))[0]}</td><td>{escape(incident.text)}</td></tr>"
        for incident in story.incidents
    )
    kinds = [incident.kind for incident in story.incidents]
    done = sum(one.status == "COMPLETED" for one in story.checkpoints.values())
    summary = (
        f"{_counted(kinds.count('failed'), 'failure')}, "
        f"{_counted(kinds.count('killed'), 'kill')} of the driver and "
        f"{_counted(kinds.count('rescaled'), 'change')} of parallelism in "
        f"{_ended(story) - began:.0f} seconds, with {_counted(done, 'completed checkpoint')}. "
        "Each time the job continued from its last checkpoint."
    )
    return _PAGE.format(summary=summary, svg=draw(story), rows=rows)


def draw(story: Story) -> str:
    """The picture as SVG: time from left to right, a band for each kind of thing."""
    scale = _Scale(_began(story), max(_ended(story), _began(story) + 1.0))
    parts = [
        *_axis(scale),
        *_rates(story.samples, scale),
        *_programs(story.lives, scale),
        *_checkpoints(story.checkpoints.values(), scale),
        *_marks(story.incidents, scale),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Timeline of the job">{"".join(parts)}</svg>'
    )


class _Scale:
    """Places times between the left and the right edge."""

    def __init__(self, began: float, ended: float) -> None:
        self.began, self.seconds = began, ended - began

    def __call__(self, time: float) -> float:
        share = (time - self.began) / self.seconds
        return round(_LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT), 1)


def _axis(scale: _Scale) -> Iterable[str]:
    step = next(step for step in (1, 2, 5, 10, 30, 60, 300, 10**6) if scale.seconds / step <= 15)
    bottom = _MARKS[0] + _MARKS[1]
    for second in range(0, int(scale.seconds) + 1, step):
        x = scale(scale.began + second)
        yield f'<line x1="{x}" x2="{x}" y1="{_RATE[0]}" y2="{bottom}" stroke="var(--line)"/>'
        yield f'<text x="{x}" y="{bottom + 20}" text-anchor="middle">{second} s</text>'


def _rates(samples: Sequence[Sample], scale: _Scale) -> Iterable[str]:
    """The events per second, as an area that has a gap where the job did not run."""
    top, height = _RATE
    most = max([1.0, *(sample.rate for sample in samples if sample.rate is not None)])
    yield from _label(top + 12, "events/s")
    yield from _label(top + 28, f"up to {most:,.0f}")
    for stretch in _stretches(samples):
        points = [
            f"{scale(sample.time)},{top + height - round((sample.rate or 0) / most * height, 1)}"
            for sample in stretch
        ]
        first, last = scale(stretch[0].time), scale(stretch[-1].time)
        area = " ".join([f"{first},{top + height}", *points, f"{last},{top + height}"])
        yield f'<polygon points="{area}" fill="var(--rate)" fill-opacity="0.25"/>'
        yield (
            f'<polyline points="{" ".join(points)}" fill="none" stroke="var(--rate)" '
            'stroke-width="1.5"/>'
        )


def _stretches(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples while the job ran, each time it did."""
    found: list[list[Sample]] = []
    before: Sample | None = None
    for sample in samples:
        if sample.rate is not None:
            begins = before is None or before.rate is None or sample.time - before.time > _GAP
            if begins:
                found.append([])
            found[-1].append(sample)
        before = sample
    return found


def _programs(lives: Sequence[Life], scale: _Scale) -> Iterable[str]:
    top, height = _PROGRAMS
    yield from _label(top + 17, "driver")
    for life in lives:
        x = scale(life.started)
        end = scale(scale.began + scale.seconds if life.ended is None else life.ended)
        yield (
            f'<rect x="{x}" y="{top}" width="{max(end - x, 2):.1f}" height="{height}" rx="4" '
            'fill="var(--life)" fill-opacity="0.5"/>'
        )
        yield f'<text x="{x + 8}" y="{top + 17}">process {life.process}</text>'


def _checkpoints(checkpoints: Iterable[Checkpoint], scale: _Scale) -> Iterable[str]:
    top, height = _CHECKPOINTS
    yield from _label(top + 17, "checkpoints")
    for one in checkpoints:
        began, ended = scale(one.time - one.duration / 1000), scale(one.time)
        colour = "var(--good)" if one.status == "COMPLETED" else "var(--bad)"
        title = escape(f"checkpoint {one.id} {one.status.lower()}, {one.duration:,} ms")
        yield (
            f'<rect x="{began}" y="{top}" width="{max(ended - began, 3):.1f}" height="{height}" '
            f'fill="{colour}"><title>{title}</title></rect>'
        )


def _marks(incidents: Sequence[Incident], scale: _Scale) -> Iterable[str]:
    top = _MARKS[0]
    yield from _label(top + 17, "what happened")
    for incident in incidents:
        if incident.kind not in _KINDS:
            continue
        x, mark = scale(incident.time), _KINDS[incident.kind][0]
        bad = " bad" if incident.kind in ("failed", "killed") else ""
        dashes = f'stroke="var(--{"bad" if bad else "dim"})" stroke-dasharray="3 3"'
        yield f'<line x1="{x}" x2="{x}" y1="{_RATE[0]}" y2="{top}" {dashes}/>'
        yield (
            f'<text class="mark{bad}" x="{x}" y="{top + 18}" text-anchor="middle">{mark}'
            f"<title>{escape(incident.text)}</title></text>"
        )
    shown = [kind for kind in _KINDS if any(one.kind == kind for one in incidents)]
    legend = "    ".join(f"{_KINDS[kind][0]} {_KINDS[kind][1]}" for kind in shown)
    yield f'<text x="{_LEFT}" y="24" xml:space="preserve">{escape(legend)}</text>'


def _label(y: float, text: str) -> Iterable[str]:
    yield f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{escape(text)}</text>'


def _began(story: Story) -> float:
    return min(
        [life.started for life in story.lives] or [sample.time for sample in story.samples] or [0.0]
    )


def _ended(story: Story) -> float:
    times = [sample.time for sample in story.samples]
    return max([*times, *(incident.time for incident in story.incidents)], default=0.0)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def write_page(story: Story, directory: Path | None) -> Path:
    """Write the page into a directory, or, without one, where temporary files are; return where."""
    if directory is None:
        handle, name = tempfile.mkstemp(prefix="orders-timeline-", suffix=".html")
        os.close(handle)
        path = Path(name)
    else:
        path = directory / "timeline.html"
    path.write_text(page(story))
    return path


def open_page(path: Path) -> bool:
    """Open the page in a browser, if somebody at a desktop has started this; say whether."""
    desktop = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return sys.stdout.isatty() and desktop and webbrowser.open(path.as_uri())
