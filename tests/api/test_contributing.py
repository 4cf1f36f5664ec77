"""Every path that CONTRIBUTING.md and the README name exists."""

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


def test_the_reading_order_names_files():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert len([path for path in named_paths(contributing) if path.endswith(".py")]) > 10
