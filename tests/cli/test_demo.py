"""``holdfast demo``: what it starts. `tests/examples/orders` runs the order system itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.orders.__main__ import parse
from holdfast.cli.commands import demo
from tests.cli.conftest import Holdfast


def test_it_becomes_the_order_system(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    assert holdfast("demo", "--events", "7").exit_code == 0
    ((program, command, environment),) = calls
    assert (program, command[:3]) == (sys.executable, [sys.executable, "-m", "examples.orders"])
    options = parse(command[3:])
    assert (options.events, options.chaos) == (7, True)
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(Path(__file__).parents[2])


def test_without_the_source(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "_SOURCE", tmp_path)
    done = holdfast("demo")
    assert done.exit_code == 1
    assert done.stderr == (
        "Error: the demo is not in the installed package; get Holdfast's source, and run "
        "'make demo' there\n"
    )
