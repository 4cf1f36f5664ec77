"""One RocksDB in a directory, and the memory that all those of a process share."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import rocksdict

from holdfast.state.errors import StateStorageError

#: rows to be put, by key; None: to be deleted
Changes = dict[bytes, bytes | None]

#: a table file is about as large as one file should be that is copied by itself
_TABLE_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 4096
_BLOOM_BITS: Final = 10
#: part of a write buffer that says which keys are not in it: a search in it has many cache misses
_BUFFER_BLOOM: Final = 0.05
#: tables of the newest level before they are merged: those of a small base are small
_NEWEST_TABLES: Final = 8
_LARGEST_BUFFER: Final = 32 << 20
#: many hosts allow a process no more than twice that
_OPEN_FILES: Final = 512
#: rows that a scan reads at a time
_PAGE: Final = 1024


class TableSpan(NamedTuple):
    """A table of a database: its file, and the keys of its first and its last row.

    The tables of a level do not overlap each other; those of level 0 do.
    """

    name: str
    level: int
    first: bytes
    last: bytes


class BudgetUser(Protocol):
    """One that has objects in memory."""

    @property
    def has_many(self) -> bool:
        """Return whether they are more than a few."""


class Budget:
    """The memory that the states of a process may take, in bytes.

    Half of it is RocksDB's: blocks, filters and write buffers, counted together. What is in use at
    a moment, such as a buffer that is being written to a table, is never thrown out: it may be on
    top of that half for that moment. The other half is for entries as Python objects, shared
    equally by the states that have more than a few.
    """

    def __init__(self, size: int) -> None:
        self._objects = size // 2
        native = size - self._objects
        self.cache = rocksdict.Cache(native)
        self.buffers = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
            native // 2, False, self.cache
        )
        self.write_buffer = min(native // 4, _LARGEST_BUFFER)
        self._users: weakref.WeakSet[BudgetUser] = weakref.WeakSet()

    def join(self, user: BudgetUser) -> None:
        """Count an owner of objects in, for as long as it lives."""
        self._users.add(user)

    @property
    def share(self) -> int:
        """Return how many bytes of objects each owner may have."""
        return self._objects // max(sum(user.has_many for user in self._users), 1)


@cache
def budget_of(size: int) -> Budget:
    """Return the budget of this process, one for each size that is asked for."""
    return Budget(size)


class RowSnapshot:
    """The rows of a database at one moment, for any thread, until the database is closed."""

    def __init__(self, snapshot: rocksdict.Snapshot, problem: Callable[..., Exception]) -> None:
        self._snapshot: rocksdict.Snapshot | None = snapshot
        self._problem = problem
        self._lock = threading.Lock()

    def get_all(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the rows of some keys."""
        with self._lock:
            if self._snapshot is None:
                raise self._problem("read", StateStorageError("it was closed"))
            return [self._get(self._snapshot, key) for key in keys]

    def _get(self, snapshot: rocksdict.Snapshot, key: bytes) -> bytes | None:
        try:
            row: bytes = snapshot[key]
        except Exception as error:
            # NB: there is no other way to ask, and no type of its own
            if str(error) == "key not found":
                return None
            raise self._problem("read", error) from error
        return row

    def release(self) -> None:
        """Let go of it: it keeps rows that are gone, and the database open."""
        with self._lock:
            self._snapshot = None


class Database:
    """Rows by key, sorted; a batch of changes is there whole or not at all, also after a crash."""

    def __init__(self, path: Path, budget: Budget, partial: bool = False) -> None:
        """Open it, or make it. Raise a StateStorageError if that does not work.

        ``partial``: only to be read, and tables may be missing; rows that would be in one of them
        are an error when they are read.
        """
        self.path = path
        options, access = _options(budget), rocksdict.AccessType.read_write()
        if partial:
            options.set_paranoid_checks(False)
            access = rocksdict.AccessType.read_only()
        with self._errors("open"):
            self._db = rocksdict.Rdict(str(path), options, access_type=access)
        self._get = self._db.get
        self._snapshots: weakref.WeakSet[RowSnapshot] = weakref.WeakSet()

    def get(self, key: bytes) -> bytes | None:
        """Return the row of a key."""
        try:
            row: bytes | None = self._get(key)
        except Exception as error:
            raise self._problem("read", error) from error
        return row

    def get_all(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the rows of some keys."""
        with self._errors("read"):
            rows: Any = self._get(list(keys))
        return list(rows)

    def write(self, changes: Changes) -> None:
        """Put and delete rows, in one step."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        # NB: in order, since RocksDB then finds most places beside each other
        for key in sorted(changes):
            row = changes[key]
            if row is None:
                delete(key)
            else:
                put(key, row)
        with self._errors("write to"):
            self._db.write(batch)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows from one key to another, that one left out, in their order.

        It may be left and taken up again at any time; what changes meanwhile may or may not show.
        """
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(end)
        ended = False
        while not ended:
            with self._errors("read"):
                # NB: no iterator is kept: it would keep what was deleted, and the database open.
                rows: Iterator[Any] = self._db.items(from_key=start, read_opt=options)
                page = list(islice(rows, _PAGE))
                del rows
            if page:
                start = page[-1][0] + b"\0"
            ended = len(page) < _PAGE and self._ends_at(start, options)
            yield from page

    def _ends_at(self, start: bytes, options: rocksdict.ReadOptions) -> bool:
        """Return whether there is no row from a key on; raise an error if that cannot be read.

        rocksdict ends a scan without a word where RocksDB fails to read a table.
        """
        with self._errors("read"):
            rest = self._db.iter(options)
            rest.seek(start)
            rest.status()
            return not rest.valid()

    def has_any(self, start: bytes, end: bytes) -> bool:
        """Return whether there is a row between these keys."""
        return next(self.scan(start, end), None) is not None

    def tables(self) -> list[TableSpan]:
        """Return the tables, whether they are there or not."""
        with self._errors("read"):
            files = self._db.live_files()
        return [
            TableSpan(f["name"].lstrip("/"), f["level"], f["start_key"], f["end_key"])
            for f in files
        ]

    def snapshot(self) -> RowSnapshot:
        """Return the rows as they are now."""
        with self._errors("read"):
            snapshot = RowSnapshot(self._db.snapshot(), self._problem)
        self._snapshots.add(snapshot)
        return snapshot

    def save_to(self, directory: Path) -> None:
        """Make a database of the same contents; its tables are the same files."""
        with self._errors("save"):
            rocksdict.Checkpoint(self._db).create_checkpoint(str(directory))

    def compact(self) -> None:
        """Write all rows anew, without those that are gone."""
        with self._errors("compact"):
            self._db.flush()
            self._db.compact_range(None, None)

    def close(self) -> None:
        """Let go of it; nothing is lost."""
        for snapshot in list(self._snapshots):
            snapshot.release()
        del self._get
        with self._errors("close"):
            self._db.close()

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._problem(action, error) from error

    def _problem(self, action: str, error: Exception) -> StateStorageError:
        where = os.fspath(self.path)
        return StateStorageError(f"cannot {action} the RocksDB in {where!r}: {error}")


def _options(budget: Budget) -> rocksdict.Options:
    tables = rocksdict.BlockBasedOptions()
    tables.set_block_cache(budget.cache)
    tables.set_block_size(_BLOCK_BYTES)
    tables.set_bloom_filter(_BLOOM_BITS, False)
    # NB: filters and indexes in the cache, or they would come on top of the budget; and in parts,
    # or that of one table could be too large for the cache, and be read with every access.
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    tables.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    tables.set_metadata_block_size(_BLOCK_BYTES)
    tables.set_pin_top_level_index_and_filter(True)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_manager(budget.buffers)
    options.set_write_buffer_size(budget.write_buffer)
    options.set_memtable_prefix_bloom_ratio(_BUFFER_BLOOM)
    options.set_memtable_whole_key_filtering(True)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_target_file_size_base(_TABLE_BYTES)
    options.set_level_zero_file_num_compaction_trigger(_NEWEST_TABLES)
    options.set_max_background_jobs(2)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    return options
