"""Runs every ``python`` block of the README and of the documentation.

Each block is a program of its own. If a ``text`` block follows it with nothing but one line of
prose in between, that is what the program prints, line by line.
"""

import re
import runpy
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n(?:(?!```)[^\n]+\n\n)?```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    name: str
    code: str
    output: str | None


def blocks():
    for page in PAGES:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            name = f"{page.relative_to(ROOT)}:{line}"
            yield Block(name, found["code"], found["output"])


def test_there_are_blocks():
    assert len(list(blocks())) >= 5


@pytest.mark.spark
@pytest.mark.parametrize("block", list(blocks()), ids=lambda block: block.name)
def test_block(block, spark, tmp_path, monkeypatch, capsys):
    program = tmp_path / "program.py"
    program.write_text(block.code)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program), run_name="__main__")
    if block.output is not None:
        assert capsys.readouterr().out.splitlines() == block.output.splitlines()
