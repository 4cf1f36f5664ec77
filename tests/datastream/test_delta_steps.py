"""A commit to a Delta table is interrupted at every step, wherever the table is."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from deltalake import DeltaTable
from deltalake.table import TableMerger

from tests.datastream.deaths import EVERY, FILE_STEPS, Death, die_at_every_step
from tests.datastream.delta_tables import data_files, hidden, referred, rows
from tests.datastream.places import everywhere
from tests.datastream.sink_engine import SinkEngine
from tests.datastream.test_delta_commits import committer, upserted

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

#: a step is before or after one of these: it writes, deletes, or makes a version of the table
STEPS = [
    *FILE_STEPS,
    *((DeltaTable, "create_write_transaction"), (TableMerger, "execute")),
]


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    it = Death()
    it.comes_at(STEPS, monkeypatch)
    return it


class Life:
    """A job that writes a Delta table."""

    def __init__(self, table: str, upserts: bool) -> None:
        self.job = SinkEngine(committer(table, upserts), stays=True)
        self._table, self._upserts = table, upserts

    def check(self) -> None:
        found, position = rows(self._table), self.job.position
        if self._upserts:
            assert {row["key"]: row["number"] for row in found} == upserted(position)
        else:
            assert sorted(row["number"] for row in found) == list(range(position))

    def hidden(self) -> list[str]:
        return hidden(self._table)

    def orphans(self) -> Collection[str]:
        return data_files(self._table) - referred(self._table)


@pytest.mark.parametrize("upserts", [False, True])
@everywhere
def test_a_death_at_every_step(
    place: str, death: Death, upserts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = 1 if place.startswith("/") else EVERY
    die_at_every_step(death, lambda step: Life(f"{place}/{step}", upserts), monkeypatch, every)
