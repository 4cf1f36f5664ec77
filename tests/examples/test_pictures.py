"""The pictures in the documentation: plans are up to date, and all others are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.draw_plans import FOLDER, PICTURES, ROOT, draw

SHOWN = re.compile(r'(?:src|srcset)="([^":]+)"')


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_that_of_its_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    told = f"docs/plans/{name}.svg is out of date: PYTHONPATH=. python scripts/draw_plans.py"
    assert (FOLDER / f"{name}.svg").read_text() == draw(name), told


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PICTURES)


def test_every_picture_is_in_a_page() -> None:
    pages = "".join(path.read_text() for path in Path(ROOT / "docs").rglob("*.md"))
    assert [name for name in PICTURES if f"plans/{name}.svg" not in pages] == []


def test_every_other_picture_is_there_and_used() -> None:
    used: set[Path] = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        used |= {(page.parent / name).resolve() for name in SHOWN.findall(page.read_text())}
    assert used == {path for path in (ROOT / "docs" / "images").rglob("*") if path.is_file()}
    # in a clone, and in the source distribution, they are for everybody
    assert all(path.stat().st_size < 400_000 for path in used)
