"""A commit to an Iceberg table is interrupted at every step, wherever the table is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tests.datastream.deaths import EVERY, FILE_STEPS, Death, die_at_every_step
from tests.datastream.iceberg_tables import (
    catalog_for,
    data_files,
    hidden,
    load,
    referred,
    transactions,
)
from tests.datastream.places import everywhere
from tests.datastream.sink_engine import SinkEngine
from tests.datastream.test_iceberg_commits import by_key, committer, numbers, upserted

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

#: a step is before or after one of these: it writes, deletes, or changes the catalog
STEPS = [
    *FILE_STEPS,
    *((PyArrowFile, "create"), (PyArrowFileIO, "delete"), (SqlCatalog, "commit_table")),
]


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    it = Death()
    it.comes_at(STEPS, monkeypatch)
    return it


class Life:
    """A job that writes an Iceberg table."""

    def __init__(self, where: Mapping[str, str], upserts: bool) -> None:
        self.job = SinkEngine(committer(where, upserts), stays=True)
        self._where, self._upserts = where, upserts

    def check(self) -> None:
        if self._upserts:
            assert by_key(self._where) == upserted(self.job.position)
        else:
            assert numbers(self._where) == list(range(self.job.position))
        committed = transactions(load(self._where))
        assert len(committed) == len(set(committed)), "each checkpoint has a transaction"

    def hidden(self) -> list[str]:
        return hidden(load(self._where))

    def orphans(self) -> Collection[str]:
        table = load(self._where)
        return data_files(table) - referred(table)


@pytest.mark.parametrize("upserts", [False, True])
@everywhere
def test_a_death_at_every_step(
    place: str, tmp_path: Path, death: Death, upserts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(step: int) -> Life:
        folder = tmp_path / str(step)
        folder.mkdir()
        there = str(folder) if place.startswith("/") else f"{place}/{step}"
        return Life(catalog_for(there, folder), upserts)

    every = 1 if place.startswith("/") else EVERY
    die_at_every_step(death, begin, monkeypatch, every)
