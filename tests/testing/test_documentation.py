"""The examples of docs/testing.md, as they stand there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example: str, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(example, str(PAGE), "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        assert callable(test)
        wanted = inspect.signature(test).parameters
        test(**({"tmp_path": tmp_path} if "tmp_path" in wanted else {}))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7
