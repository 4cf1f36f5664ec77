"""Draws the pictures in docs/plans: each is the plan of a program, as `holdfast info --svg` has it.

``make docs`` runs this; ``tests/examples/test_pictures.py`` fails if a picture is out of date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from click.testing import CliRunner

from holdfast.cli import main

__all__ = ["FOLDER", "PICTURES", "draw"]

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs" / "plans"
#: programs, by the name of the picture
PICTURES: Final = {
    "connected_streams": "examples/connected_streams.py",
    "orders": "examples/orders/__main__.py",
    "several_branches": "examples/several_branches.py",
    "word_count": "examples/word_count.py",
}


def draw(name: str) -> str:
    """Return a picture; the parallelism does not depend on the machine."""
    program = str(ROOT / PICTURES[name])
    done = CliRunner().invoke(main, ["info", "-p", "2", "--svg", program])
    if done.exit_code:
        message = f"{PICTURES[name]} has no plan: {done.output}"
        raise RuntimeError(message)
    # NB: before it, there is what the program prints
    return done.stdout[done.stdout.index("<svg") :]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        (FOLDER / f"{picture}.svg").write_text(draw(picture))
