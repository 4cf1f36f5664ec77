"""What the tests of the simulation share: quiet, and single seeds by ``--seed``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What a driver warns of is in a seed's story already."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--seed`` only that is run."""
    if not config.getoption("--seed"):
        return
    here = Path(__file__).parent
    others = [i for i in items if i.path.parent == here and not i.name.startswith("test_seeds[")]
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=others)
