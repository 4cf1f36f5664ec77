"""Every path that pages name exists, and the reading tour passes every folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: folders of the repository that a path in backticks can begin with
TOP = ("src/", "tests/", "docs/", "examples/", "benchmarks/", "scripts/", ".ci/")


def named_paths(text):
    """Paths in backticks, and targets of links."""
    quoted = re.findall(r"`([\w.\-/]+)`", text)
    yield from (path for path in quoted if path.startswith(TOP))


def linked_paths(text):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http:", "https:", "mailto:")):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_exists(page):
    text = page.read_text()
    gone = [path for path in named_paths(text) if not (ROOT / path).exists()]
    dead = [path for path in linked_paths(text) if not (page.parent / path).exists()]
    assert not gone, f"named but not there: {gone}"
    assert not dead, f"linked but not there: {dead}"


def test_the_reading_tour_passes_every_room_once():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    tour = contributing.partition("## A reading tour")[2].partition("\n## ")[0]
    steps = re.split(r"^\d+\. ", tour, flags=re.MULTILINE)[1:]
    passed = [room for step in steps for room in {Path(p).parent for p in named_paths(step)}]
    source = ROOT / "src" / "holdfast"
    rooms = {module.parent.relative_to(ROOT) for module in source.rglob("*.py")}
    assert sorted(room for room in passed if room.parts[0] == "src") == sorted(
        rooms - {source.relative_to(ROOT)}
    )
