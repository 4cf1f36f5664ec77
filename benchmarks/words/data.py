"""The words in text files, made once for each number of words; needs NumPy alone."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measure import Mark, Measurement, measured
from benchmarks.records import MULTIPLIER, PRIME, VOCABULARY

__all__ = ["ROOT", "Totals", "Words", "checked", "make"]

ROOT = Path(__file__).resolve().parent.parent.parent / ".bench" / "words"
#: Words in a file.
_WORDS = 100_000
_EXPECTED = "expected.json"


class Totals(NamedTuple):
    """What the counts of all words come to: their sum, and the sum of their squares."""

    words: int
    squares: int


class Words(NamedTuple):
    """A directory of files, and what counting them must come to."""

    directory: Path
    expected: Totals


def make(count: int, root: Path = ROOT) -> Words:
    """Write the files unless they are there."""
    home = root / str(count)
    if not home.exists():
        root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=root))
        (draft / _EXPECTED).write_text(json.dumps(_write(draft / "files", count)), "utf-8")
        try:
            draft.rename(home)
        except OSError:  # another program was faster
            shutil.rmtree(draft)
    return Words(home / "files", Totals(*json.loads((home / _EXPECTED).read_text("utf-8"))))


def _write(directory: Path, count: int) -> Totals:
    directory.mkdir()
    lines = [f"word{number}\n" for number in range(VOCABULARY)]
    counts = np.zeros(VOCABULARY, np.int64)
    for first in range(0, count, _WORDS):
        numbers = np.arange(first, min(first + _WORDS, count)) * MULTIPLIER % PRIME
        drawn = numbers * numbers % PRIME % VOCABULARY
        counts += np.bincount(drawn, minlength=VOCABULARY)
        text = "".join(map(lines.__getitem__, drawn.tolist()))
        (directory / f"{first // _WORDS:06}.txt").write_text(text, "ascii")
    return Totals(int(counts.sum()), int((counts * counts).sum()))


def checked(
    found: Totals, expected: Totals, marks: list[Mark], warm_up: float | None = None
) -> Measurement:
    """Return the measurement of a run, if its result is right."""
    if found != expected:
        raise SystemExit(f"Error: wrong result: it is {found}, expected {expected}")
    return measured(marks, warm_up=warm_up)
