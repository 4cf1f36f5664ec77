"""The figures that pictures are drawn from, and the file in which the documentation keeps them.

Each figure carries where and when it was measured. A newer one of the same thing takes the place
of an older one, so a run of some benchmarks leaves the others as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Comparison", "Figures", "Point", "Run"]


@dataclass(frozen=True)
class Run:
    """Where and when something was measured."""

    date: str = ""
    commit: str = ""
    machine: str = ""
    #: The load average before the run; None if it is not known.
    load: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A figure of Holdfast, and the same figure of another program.

    Attributes:
        picture: The picture that it is in; "" for the table alone.
        work: What was run.
        against: What Holdfast was compared with; "" for a figure by itself.
        ours, theirs: The figures; None if only their ratio was kept.
        unit: ``/s``, ``ms``, ….
        ratio: How many times as good as the other Holdfast is: above 1, Holdfast is better.
        lowest, highest: Those of single rounds.
        bar: The least ratio that is wanted; without a ratio, the figure that is allowed at most.
    """

    picture: str
    work: str
    against: str
    ours: float | None
    theirs: float | None
    unit: str
    ratio: float | None
    lowest: float | None = None
    highest: float | None = None
    bar: float | None = None
    run: Run = field(default_factory=Run)

    @property
    def reached(self) -> bool:
        """Whether it reaches its bar; true if there is none."""
        if self.bar is None:
            return True
        if self.ratio is not None:
            return self.ratio >= self.bar
        return self.ours is None or self.ours <= self.bar

    @property
    def slower(self) -> bool:
        """Whether the other one is better."""
        return self.ratio is not None and self.ratio < 1


@dataclass(frozen=True)
class Point:
    """The latency of an engine at a rate, in milliseconds."""

    engine: str
    rate: float
    p50: float | None
    p99: float | None
    run: Run = field(default_factory=Run)


@dataclass(frozen=True)
class Figures:
    """All figures, in the order of the pictures."""

    comparisons: tuple[Comparison, ...] = ()
    points: tuple[Point, ...] = ()

    def merged(self, newer: Figures) -> Figures:
        """Return these figures, with newer ones in the places of older ones.

        The points of an engine are one curve: new ones take the place of all of that engine.
        """
        compared = {_name(each): each for each in self.comparisons}
        compared.update((_name(each), each) for each in newer.comparisons)
        engines = {point.engine for point in newer.points}
        kept = tuple(point for point in self.points if point.engine not in engines)
        return Figures(tuple(compared.values()), kept + newer.points)

    def of(self, picture: str) -> list[Comparison]:
        """Return the comparisons of a picture."""
        return [each for each in self.comparisons if each.picture == picture]

    @classmethod
    def read(cls, path: Path) -> Figures:
        """Read a file, or return nothing if there is none."""
        if not path.exists():
            return cls()
        data = json.loads(path.read_text("utf-8"))
        return cls(
            tuple(_made(Comparison, each) for each in data["comparisons"]),
            tuple(_made(Point, each) for each in data["points"]),
        )

    def write(self, path: Path) -> None:
        """Write them to a file."""
        data = {
            "comparisons": [asdict(each) for each in self.comparisons],
            "points": [asdict(each) for each in self.points],
        }
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def together(cls, parts: Iterable[Figures]) -> Figures:
        """Return all of several figures; later ones win."""
        found = cls()
        for part in parts:
            found = found.merged(part)
        return found


def _name(each: Comparison) -> tuple[str, str, str]:
    return each.picture, each.work, each.against


def _made(kind: Any, data: dict[str, Any]) -> Any:
    return kind(**{**data, "run": Run(**data["run"])})
