"""Removal of expired entries from the states of a backend, in addition to removal on read.

All of it happens at the end of an epoch, before state is written:

- incrementally: as many entries are checked as the setting says for each access since (and for
  each record, if it says so), but none twice. The next epoch goes on where this one stopped.
- with compaction: all entries are checked, and the clock is read again after as many of them as
  the setting says. The backend says when: see `TtlStates.before_base`.
- with a checkpoint, if the full snapshot must not hold expired entries: the same, and a backend
  writes a base (see `TtlStates.must_be_clean`), so that their bytes are gone, too.

A round over all entries finds the oldest stamp. No entry is checked again until that stamp has
expired, since nothing can have expired before.

An entry here is a value, an accumulator, an element of a list, or an entry of a map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from holdfast.state.columns.column import Column
from holdfast.state.descriptors import State, StateDescriptor, ValueStateDescriptor
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.tables import Table, ValueTable
from holdfast.state.live.ttl.lifetime import Clock, Lifetime, stamped
from holdfast.state.live.ttl.views import make_ttl_view
from holdfast.state.live.views import make_view
from holdfast.state.names import StateId
from holdfast.state.ttl_config import StateTtlConfig

#: starts an iteration over (key, namespace, entry) of a state; see `KeyedStateBackend._scan`
Scan = Callable[[], Iterator[tuple[Any, Any, Any]]]


#: rows of a column that are checked at once
_ROWS_AT_ONCE: Final = 1 << 16


class _Aside:
    """A view of a state's pairs, for keys other than the one that the function is at."""

    __slots__ = ("_context", "_state")

    def __init__(self, pairs: StateDescriptor, table: Table[Any]) -> None:
        self._context = KeyContext()
        self._state: Any = make_view(pairs, table, self._context)

    def at(self, key: Any, namespace: Any) -> Any:
        """Return the state, of that key and namespace until the next call."""
        self._context.key = key
        self._context.namespace = namespace
        return self._state


class _Sweeper(ABC):
    """Iterates over a state and removes expired entries.

    NB: the iteration may yield outdated entries, so each is looked up again before it is removed.
    """

    def __init__(self, scan: Scan, aside: _Aside) -> None:
        self._scan = scan
        self._aside = aside
        #: entries with this stamp or an older one have expired
        self.deadline = 0
        #: the oldest stamp of the entries that a walk has kept, and of those added meanwhile
        self.oldest = 0

    @abstractmethod
    def walk(self) -> Iterator[Any]:
        """Check one entry with each step."""

    @abstractmethod
    def visible(self, entry: Any) -> Any:
        """Return the unexpired values of an entry, without stamps; None if there are none."""


class _ValueSweeper(_Sweeper):
    def walk(self) -> Iterator[Any]:
        for key, namespace, (_, stamp) in self._scan():
            if stamp <= self.deadline:
                pairs = self._aside.at(key, namespace)
                if self.visible(pairs.value()) is None:
                    pairs.clear()
            elif stamp < self.oldest:
                self.oldest = stamp
            yield

    def visible(self, entry: Any) -> Any:
        return entry[0] if entry is not None and entry[1] > self.deadline else None


class _ListSweeper(_Sweeper):
    def walk(self) -> Iterator[Any]:
        for key, namespace, found in self._scan():
            steps = range(len(found))
            stamps = [stamp for _, stamp in found]
            if min(stamps) <= self.deadline:
                pairs = self._aside.at(key, namespace)
                pairs.update([pair for pair in pairs.get() if pair[1] > self.deadline])
                stamps = [stamp for stamp in stamps if stamp > self.deadline]
            self.oldest = min([self.oldest, *stamps])
            yield from steps

    def visible(self, entry: Any) -> Any:
        return [value for value, stamp in entry if stamp > self.deadline] or None


class _MapSweeper(_Sweeper):
    def walk(self) -> Iterator[Any]:
        for key, namespace, found in self._scan():
            for name, (_, stamp) in list(found.items()):
                if stamp <= self.deadline:
                    pairs = self._aside.at(key, namespace)
                    pair = pairs.get(name)
                    if pair is not None and pair[1] <= self.deadline:
                        pairs.remove(name)
                elif stamp < self.oldest:
                    self.oldest = stamp
                yield

    def visible(self, entry: Any) -> Any:
        kept = {name: value for name, (value, stamp) in entry.items() if stamp > self.deadline}
        return kept or None


_SWEEPERS: dict[str, type[_Sweeper]] = {"list": _ListSweeper, "map": _MapSweeper}


class _TtlState:
    """One state with a time-to-live."""

    def __init__(
        self, kind: str, config: StateTtlConfig, clock: Clock, scan: Scan, aside: _Aside
    ) -> None:
        self.config = config
        self.life = Lifetime(config, clock)
        self.records = 0
        self._sweeper = _SWEEPERS.get(kind, _ValueSweeper)(scan, aside)
        #: the unfinished round of the incremental clean-up
        self._walk: Iterator[Any] | None = None
        #: no entry has an older stamp; None if not all entries have been checked yet
        self._oldest: int | None = None
        cleanups = config.get_cleanup_strategies()
        self._incremental = cleanups.get_incremental_cleanup_strategy()
        self._compaction = cleanups.get_rocksdb_compact_filter_cleanup_strategy()
        self.in_snapshots = cleanups.in_full_snapshot()
        #: whether entries may have expired since the last compaction
        self.stale = False

    def end_epoch(self) -> None:
        """Check as many entries as the incremental clean-up is due for this epoch."""
        owed = self._owed()
        if owed > 0 and (self._walk or self._may_be_over()):
            walk = self._walk or self._begin()
            self._walk = walk if self._step(walk, owed) else None

    def sweep(self) -> None:
        """Check all entries if one of them may have expired."""
        if self._may_be_over():
            compaction, walk = self._compaction, self._begin()
            often = compaction.get_query_time_after_num_entries() if compaction else 1000
            while self._step(walk, max(often, 1)):
                pass
            self._walk = None

    def forget(self) -> None:
        """Start a new round with the next clean-up."""
        self._walk = self._oldest = None

    @property
    def in_bases(self) -> bool:
        """Return whether to check all entries when a base is written."""
        return self.in_snapshots or self._compaction is not None

    def visible(self, entry: Any) -> Any:
        """Return the part of an entry that is visible to functions; None if there is none."""
        self._sweeper.deadline = -1 << 63 if self.life.returns_expired else self.life.deadline()
        return self._sweeper.visible(entry)

    def is_overdue(self, swept: int) -> bool:
        """Return whether the compaction period has passed since the time ``swept``."""
        if self._compaction is None:
            return False
        period = self._compaction.get_periodic_compaction_time().to_millis()
        return 0 < period <= self.life.clock() - swept

    def _may_be_over(self) -> bool:
        return self._oldest is None or self._oldest <= self.life.deadline()

    def _begin(self) -> Iterator[Any]:
        """Start a round; entries that are added from now on have a later stamp."""
        # NB: this also covers entries that reads removed: they were expired like those found here.
        self.stale = True
        self._sweeper.oldest = self.life.clock()
        return self._sweeper.walk()

    def _step(self, walk: Iterator[Any], entries: int) -> bool:
        """Check up to ``entries`` entries; return whether there were that many."""
        self._sweeper.deadline = self.life.deadline()
        if sum(1 for _ in islice(walk, entries)) == entries:
            return True
        self._oldest = self._sweeper.oldest
        return False

    def _owed(self) -> int:
        accesses, self.life.accesses = self.life.accesses, 0
        records, self.records = self.records, 0
        if self._incremental is None:
            return 0
        every_record = self._incremental.run_cleanup_for_every_record()
        return self._incremental.get_cleanup_size() * (accesses + records * every_record)


class _ColumnTtlState(_TtlState):
    """A state in columns with a time-to-live: as many rows are checked at once as are due."""

    def __init__(self, config: StateTtlConfig, clock: Clock, column: Column) -> None:
        pairs = ValueStateDescriptor("pairs")
        aside = _Aside(pairs, ValueTable("", "pairs", "value", (None,)))
        super().__init__("value", config, clock, lambda: iter(()), aside)
        self._column = column

    def _begin(self) -> Iterator[Any]:
        super()._begin()
        return iter(range(0, len(self._column.present), _ROWS_AT_ONCE))

    def _step(self, walk: Iterator[Any], entries: int) -> bool:
        """Check rows in large steps, since a step costs more than the rows in it."""
        steps = max(entries // _ROWS_AT_ONCE, 1)
        done = list(islice(walk, steps))
        for start in done:
            gone, oldest = self._column.expired(start, start + _ROWS_AT_ONCE)
            self._column.drop(gone)
            self._sweeper.oldest = min(self._sweeper.oldest, oldest)
        if len(done) == steps:
            return True
        self._oldest = self._sweeper.oldest
        return False


class TtlStates:
    """The states of a backend that have a time-to-live."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._states: dict[StateId, _TtlState] = {}

    def view(
        self,
        state: StateId,
        descriptor: StateDescriptor,
        context: KeyContext,
        find: Callable[[StateDescriptor], Table[Any]],
        scan: Scan,
    ) -> State:
        """Return the state that a function uses.

        ``find`` returns a backend's table for the descriptor of pairs, ``scan`` walks over it.
        """
        config = descriptor.ttl_config
        assert config is not None
        pairs = stamped(descriptor)
        table = find(pairs)
        known = self._states.get(state)
        if known is None or known.config != config:
            aside = _Aside(pairs, table)
            known = _TtlState(descriptor.kind, config, self.clock, scan, aside)
            self._states[state] = known
        return make_ttl_view(descriptor, table, context, known.life)

    def watch_column(self, state: StateId, config: StateTtlConfig, column: Column) -> None:
        """Let the values of a column expire."""
        known = self._states.get(state)
        if known is None or known.config != config:
            known = self._states[state] = _ColumnTtlState(config, self.clock, column)
        column.life = known.life

    def processed(self, operator: str, records: int) -> None:
        """Count the records that an operator has processed."""
        for (owner, _, _), state in self._states.items():
            if owner == operator:
                state.records += records

    def end_epoch(self) -> None:
        """Clean up incrementally."""
        for state in self._states.values():
            state.end_epoch()

    def before_base(self) -> None:
        """Clean up completely the states that are configured for it."""
        for state in self._states.values():
            if state.in_bases:
                state.sweep()

    def must_be_clean(self, swept: int, durable: bool) -> bool:
        """Return whether the next write must leave no expired entry in the files.

        That is so if it is part of a checkpoint that must not have any, or if the period of a state
        has passed since all entries were checked (0: unknown) and files hold expired ones.
        """
        if durable and any(state.in_snapshots for state in self._states.values()):
            return True
        if swept == 0 or not any(state.is_overdue(swept) for state in self._states.values()):
            return False
        self.before_base()
        return self.stale

    def swept(self, before: int, now: bool) -> int:
        """Return when all entries were last checked; if that is not known, the time begins now."""
        return self.clock() if now else before or self.clock()

    @property
    def stale(self) -> bool:
        """Return whether files may hold expired entries of states with clean-up in compaction."""
        return any(state.in_bases and state.stale for state in self._states.values())

    def compacted(self) -> None:
        """Record that no file holds entries that have been removed."""
        for state in self._states.values():
            state.stale = False

    def stale_states(self) -> list[_TtlState]:
        """Return the states whose files may hold expired entries."""
        return [state for state in self._states.values() if state.stale]

    def not_compacted(self, states: Iterable[_TtlState]) -> None:
        """Undo `compacted` for states that were stale before it."""
        for state in states:
            state.stale = True

    def forget(self) -> None:
        """Discard unfinished rounds, because the state was replaced."""
        for state in self._states.values():
            state.forget()

    def visible(
        self, table_id: StateId, entries: Iterator[tuple[Any, Any, Any]]
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Return the entries that are visible to functions, without stamps."""
        state = self._states.get(table_id)
        if state is None:
            return entries
        seen = ((key, space, state.visible(entry)) for key, space, entry in entries)
        return (entry for entry in seen if entry[2] is not None)
