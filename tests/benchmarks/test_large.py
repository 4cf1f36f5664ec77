"""The benchmark of large state, without hosts: its storage, its table, and its command line."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.large.command import parse
from benchmarks.large.figures import Row, render
from benchmarks.large.store import BUCKET, Store
from holdfast.filesystem.arrow import ArrowFileSystem


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(socket.create_server(("127.0.0.1", 0)), tmp_path)
    yield made
    made.close()


@pytest.fixture
def files(store: Store) -> ArrowFileSystem:
    host, port = store.address
    options = {
        "fs.s3a.endpoint": f"http://{host}:{port}",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }
    return ArrowFileSystem(f"s3a://{BUCKET}", options)


@pytest.mark.parametrize("size", [0, 5, 12_000_000])
def test_the_storage_gives_back_what_it_got_and_counts_it(
    store: Store, files: ArrowFileSystem, size: int
) -> None:
    path, data = f"{BUCKET}/jobs/state/an object+1", os.urandom(size)
    files.make_directories(f"{BUCKET}/jobs/state")
    files.write(path, data)
    assert files.read(path) == data
    assert (store.received, store.sent) == (size, size)
    assert store.size() == size


def test_the_storage_lists_and_deletes(files: ArrowFileSystem) -> None:
    folder = f"{BUCKET}/jobs/state"
    files.make_directories(folder)
    for name in ("a", "b"):
        files.write(f"{folder}/{name}", name.encode())
    found = [(status.name, status.size) for status in files.list_directory(folder)]
    assert found == [("a", 1), ("b", 1)]
    assert [status.is_directory for status in files.list_directory(f"{BUCKET}/jobs")] == [True]
    files.delete(f"{folder}/a")
    assert not files.exists(f"{folder}/a")
    assert files.exists(f"{folder}/b")
    files.delete_tree(f"{BUCKET}/jobs")
    assert files.list_directory(f"{BUCKET}/jobs") == []


def test_sizes() -> None:
    assert parse([]).sizes == [100]
    assert parse(["--full"]).sizes == [1000, 3000, 10_000]
    assert parse(["--sizes", "5,7"]).sizes == [5, 7]


def test_the_table_has_a_line_for_each_step() -> None:
    row = Row("fill", 1.25, sent=2_000_000, received=3_000_000, local=4_000_000, slots_mb=500.4)
    assert render([(1000, row)]).splitlines()[2] == "| 1,000 | fill | 1.2 | 2 | 4 | 3 | 500 | 0 |"
