"""The broken examples: each is a program with one mistake, and the documentation names it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples" / "broken").glob("[!_]*.py"))


def test_there_are_ten_and_the_documentation_has_them() -> None:
    page = (ROOT / "docs" / "torture.md").read_text()
    table = page.partition("## Ten broken jobs")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(PROGRAMS) == 10
    assert sorted(named) == [path.stem for path in PROGRAMS]


def test_each_explains_its_mistake_and_marks_the_line() -> None:
    for path in PROGRAMS:
        text = path.read_text()
        assert (ast.get_docstring(ast.parse(text)) or "").startswith("MISTAKE: "), path
        assert text.count("# the mistake") == 1, path
