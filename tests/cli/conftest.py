"""The command, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main

Holdfast = Callable[..., Result]
Program = Callable[[str], str]


@pytest.fixture
def holdfast() -> Holdfast:
    """Calls the command with these arguments."""
    return lambda *arguments: CliRunner().invoke(main, [str(part) for part in arguments])


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes a program; gives its path."""

    def write(text: str) -> str:
        path = tmp_path / "program" / "job.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))
        return str(path)

    return write
