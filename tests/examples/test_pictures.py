"""The pictures in the documentation are those of the plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.draw_plans import FOLDER, PICTURES, ROOT, draw


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
