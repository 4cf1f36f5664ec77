"""Where the functions of the simulated job find the world that they run in.

They are unpickled for every subtask, so they can hold nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

_worlds: list[World] = []


def world() -> World:
    return _worlds[-1]


@contextmanager
def entered(world: World) -> Iterator[None]:
    _worlds.append(world)
    try:
        yield
    finally:
        _worlds.pop()
