"""The messages that the page about troubleshooting explains are those of the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
#: the first column of its tables, where that is a message
MESSAGE = re.compile(r"^\| `(.+?)` \|", re.MULTILINE)
VALUE = "…"


def literals(tree: ast.AST) -> Iterator[str]:
    """All strings of a module, with an ellipsis for what is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def source() -> str:
    """The strings of the package, each in a line."""
    modules = sorted((ROOT / "src" / "holdfast").rglob("*.py"))
    found = (text for path in modules for text in literals(ast.parse(path.read_text())))
    return "\n".join(" ".join(text.split()) for text in found)


def test_there_are_messages() -> None:
    assert len(MESSAGE.findall(PAGE.read_text())) > 50


@pytest.mark.parametrize("message", MESSAGE.findall(PAGE.read_text()))
def test_the_source_has_the_message(message: str, source: str) -> None:
    """As a whole; a value at its end may stand for more."""
    assert message.rstrip(f"{VALUE} ") in source
