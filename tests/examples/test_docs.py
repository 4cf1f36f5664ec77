"""Runs every ``python`` block of the README and of the documentation.

Each block is a program of its own. If a ``text`` block follows it with nothing but one line of
prose in between, that is what the program prints, line by line. Tests in it are run. A ``console``
block after it has commands (``$ holdfast ...``) for where the program ran, and what they print.
"""

import doctest
import importlib
import re
import runpy
import shlex
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from holdfast.cli import main

ROOT = Path(__file__).parents[2]
#: its blocks are cells of one notebook: see test_notebook_page.py
NOTEBOOK = ROOT / "docs" / "notebooks.md"
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page != NOTEBOOK]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n(?:(?!```)[^\n]+\n\n)?```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (holdfast .*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


ON_SPARK = re.compile(r"\.execute(_async|_and_collect)?\(|SparkSession")


class Block(NamedTuple):
    name: str
    code: str
    output: str | None
    #: commands to be given afterwards, each with what it prints
    commands: list[tuple[str, str]]


def blocks():
    for page in PAGES:
        text = page.read_text()
        found = list(BLOCK.finditer(text))
        ends = [*(block.start() for block in found), len(text)][1:]
        for block, end in zip(found, ends, strict=True):
            line = text.count("\n", 0, block.start()) + 1
            consoles = CONSOLE.findall(text, block.end(), end)
            commands = [command for console in consoles for command in COMMAND.findall(console)]
            name = f"{page.relative_to(ROOT)}:{line}"
            yield Block(name, block["code"], block["output"], commands)


def test_there_are_blocks():
    assert len(list(blocks())) >= 35


def test_every_console_is_behind_a_program():
    commands = sum(len(block.commands) for block in blocks())
    assert commands == sum(page.read_text().count("\n$ ") for page in PAGES) > 1


def programs():
    """The blocks; those that run a job on Spark are marked."""
    for block in blocks():
        needs_spark = ON_SPARK.search(block.code)
        yield pytest.param(block, marks=pytest.mark.spark if needs_spark else (), id=block.name)


@pytest.mark.parametrize("block", list(programs()))
def test_block(block, request, tmp_path, monkeypatch, capsys):
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
    program = tmp_path / "program.py"
    program.write_text(block.code)
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(program), run_name="__main__")
    if block.output is not None:
        assert capsys.readouterr().out.splitlines() == block.output.splitlines()
    for name, value in names.items():
        if name.startswith("test_"):
            value(**{"tmp_path": tmp_path} if "tmp_path" in signature(value).parameters else {})
    for command, output in block.commands:
        assert CliRunner().invoke(main, shlex.split(command)[1:]).output == output, command


SOURCE = ROOT / "src"
SESSIONS = [path for path in sorted(SOURCE.rglob("*.py")) if "\n    >>> " in path.read_text()]


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_sessions_in_docstrings(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert (failed, attempted > 0) == (0, True)
