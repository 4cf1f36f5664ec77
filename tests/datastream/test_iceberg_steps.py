"""A commit to an Iceberg table is interrupted at every step, wherever the table is."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from holdfast.datastream.connectors.iceberg.catalog import file_io_properties
from holdfast.datastream.connectors.tables.place import NO_ATTEMPT
from holdfast.filesystem import LocalFileSystem, configure, file_system_of
from holdfast.filesystem.arrow import ArrowFileSystem
from holdfast.runtime.failures import OperatorFailed
from tests.datastream.iceberg_tables import NAMESPACE, catalog, load, properties
from tests.datastream.sink_engine import SinkEngine
from tests.datastream.test_iceberg_commits import by_key, committer, numbers, upserted

#: a step is before or after one of these: it writes, deletes, or changes the catalog
STEPS = [
    *((kind, name) for kind in (LocalFileSystem, ArrowFileSystem) for name in ("write", "delete")),
    *((PyArrowFile, "create"), (PyArrowFileIO, "delete"), (SqlCatalog, "commit_table")),
]
#: more than a commit has
MOST = 100
#: elsewhere a commit takes a second, so only one in so many steps is tried
EVERY = 4


class Died(Exception):
    """The process dies."""


class Death:
    """Comes at a step; nothing is done after it until the next process begins."""

    def __init__(self) -> None:
        self.left = -1

    @property
    def has_come(self) -> bool:
        return self.left == 0

    def step(self) -> None:
        self.left = max(self.left - 1, 0) if self.left >= 0 else -1
        if self.has_come:
            raise Died

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            self.step()
            result = method(*args, **named)
            self.step()
            return result

        return call


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    it = Death()
    for kind, name in STEPS:
        monkeypatch.setattr(kind, name, it.around(getattr(kind, name)))
    return it


@pytest.fixture(params=["local", "s3", pytest.param("hdfs", marks=pytest.mark.spark)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The properties of a catalog with a namespace."""
    found = properties(tmp_path)
    if request.param == "hdfs":
        found["warehouse"] = f"{request.getfixturevalue('hdfs')}/{uuid.uuid4().hex}/warehouse"
    elif request.param == "s3":
        s3 = request.getfixturevalue("s3")
        configure(s3.options)
        found["warehouse"] = s3.uri.replace("s3a://", "s3://") + "/warehouse"
        found |= file_io_properties(s3.options, found["warehouse"])
    yield found
    configure({})


@pytest.mark.parametrize("upserts", [False, True])
def test_a_death_at_every_step_of_a_commit(
    where: dict[str, str], death: Death, upserts: bool
) -> None:
    catalog(where).create_namespace(NAMESPACE)
    job = SinkEngine(committer(where, upserts), stays=True)
    steps = range(1, MOST, 1 if where["warehouse"].startswith("file:") else EVERY)
    for step in steps:
        job.epoch(2, checkpoint=True)
        death.left = step
        try:
            job.epoch()
            survived = not death.has_come
        except OperatorFailed:
            survived = False
        death.left = -1
        job.restart()
        job.epoch()
        if upserts:
            assert by_key(where) == upserted(job.position), step
        else:
            assert numbers(where) == list(range(job.position)), step
        assert _hidden(where) == [], step
        if survived:
            break
    assert 8 < step < steps[-1]
    committed = [each.summary for each in load(where).snapshots()]
    names = [each and each.get("holdfast.transaction") for each in committed]
    assert len({*names}) == steps.index(step) + 1, "each checkpoint has a transaction"


def _hidden(where: dict[str, str]) -> list[str]:
    """What the sink has not cleaned up, except what it deletes when it is a day old."""
    system, base = file_system_of(load(where).location())
    return [
        status.name
        for sink in system.list_directory(f"{base}/data/_holdfast")
        for status in system.list_directory(f"{base}/data/_holdfast/{sink.name}")
        if not status.name.startswith(f"{NO_ATTEMPT}-")
    ]
