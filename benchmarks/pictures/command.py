"""The command ``python -m benchmarks draw``: pictures of what the other commands measured.

Without options it reads the files in ``.bench`` and draws to ``.bench/pictures``. With ``--docs``
the figures go into those of the documentation, and its pictures and tables are written again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.console import HOME, ROOT
from benchmarks.pictures.bars import draw_bars
from benchmarks.pictures.curves import draw_curves
from benchmarks.pictures.figures import Figures
from benchmarks.pictures.page import LATENCY, LATENCY_TITLE, PICTURES, filled
from benchmarks.pictures.results import read
from benchmarks.pictures.svg import THEMES

__all__ = ["draw", "draw_results", "main", "parse"]

FILES = ("results", "engines", "peers")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks draw", description="Draws what the benchmarks measured."
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="JSON",
        help="results to draw; later ones win. Those in .bench unless given",
    )
    parser.add_argument(
        "--docs",
        action="store_true",
        help="put the figures into docs/benchmarks.json, and write the pictures and the tables of "
        "docs/benchmarks.md again",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(arguments)
    files = options.files or [path for name in FILES if (path := HOME / f"{name}.json").exists()]
    if missing := [str(path) for path in files if not path.is_file()]:
        print(f"error: there is no file {', '.join(missing)}", file=sys.stderr)
        return 1
    figures = Figures.together(read(path) for path in files)
    for path in update_docs(figures) if options.docs else draw(figures, HOME / "pictures"):
        print(path)
    return 0


def draw(figures: Figures, directory: Path) -> list[Path]:
    """Draw all pictures that there are figures for, in light and dark; return their paths."""
    texts: dict[str, str] = {}
    for theme in THEMES:
        for name, (title, groups) in PICTURES.items():
            if found := [each for each in figures.of(name) if each.ratio is not None]:
                texts[f"{name}-{theme.name}"] = draw_bars(title, found, groups, theme)
        if figures.points:
            texts[f"{LATENCY}-{theme.name}"] = draw_curves(LATENCY_TITLE, figures.points, theme)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.svg" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, "utf-8")
    return paths


def update_docs(newer: Figures, docs: Path = ROOT / "docs") -> list[Path]:
    """Put figures into the documentation; return what was written."""
    kept, page = docs / "benchmarks.json", docs / "benchmarks.md"
    figures = Figures.read(kept).merged(newer)
    text = filled(page.read_text("utf-8"), figures)
    figures.write(kept)
    page.write_text(text, "utf-8")
    return [kept, page, *draw(figures, docs / "images" / "benchmarks")]


def draw_results(path: Path) -> None:
    """Draw what a command has just written, and say where."""
    directory = path.parent / "pictures"
    if drawn := draw(read(path), directory):
        print(f"drawn to {directory}: {', '.join(each.name for each in drawn)}", file=sys.stderr)
