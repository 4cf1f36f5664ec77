"""Removes expired entries from the states of a backend, besides those that reads find.

All of it is done at the end of an epoch, before state is written:

- incrementally: as many entries are checked as the setting says for each access since (and for
  each record, if it says so), but none twice. The next epoch goes on where this one stopped.
- with compaction: all entries are checked, and the clock is read again after as many of them as
  the setting says. The backend says when: see `TtlStates.before_base`.
- with a checkpoint, if the full snapshot must not hold expired entries: the same, and a backend
  writes a base (see `TtlStates.in_snapshots`), so that their bytes are gone, too.

A round over all entries finds the oldest stamp there is, and as long as that one has not expired,
nothing has: so no entry is checked until then.

An entry here is a value, an accumulator, an element of a list, or an entry of a map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from holdfast.datastream.state import State, StateDescriptor, StateTtlConfig
from holdfast.state.ttl import Aside, Clock, Lifetime, stamped
from holdfast.state.ttl_views import make_ttl_view
from holdfast.state.views import KeyContext

__all__ = ["Scan", "TtlStates"]

#: operator, state, namespaced
_TableId = tuple[str, str, bool]
#: starts a walk over (key, namespace, entry) of a state; see `KeyedStateBackend._scan`
Scan = Callable[[], Iterator[tuple[Any, Any, Any]]]


class _Sweeper(ABC):
    """Walks over a state and removes what is over.

    NB: what a walk finds may be older than the state, so it is looked up before it is removed.
    """

    def __init__(self, scan: Scan, aside: Aside) -> None:
        self._scan = scan
        self._aside = aside
        #: stamps up to this are over
        self.deadline = 0
        #: the oldest stamp of the entries that a walk has left, and of those that came meanwhile
        self.oldest = 0

    @abstractmethod
    def walk(self) -> Iterator[Any]:
        """Look at one entry with each step."""

    @abstractmethod
    def visible(self, entry: Any) -> Any:
        """Return the values of an entry that are not over, without stamps; None if all are."""


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
        self, kind: str, config: StateTtlConfig, clock: Clock, scan: Scan, aside: Aside
    ) -> None:
        self.config = config
        self.aside = aside
        self.life = Lifetime(config, clock)
        self.records = 0
        self._sweeper = _SWEEPERS.get(kind, _ValueSweeper)(scan, aside)
        #: the round that the last incremental clean-up did not finish
        self._walk: Iterator[Any] | None = None
        #: no entry has an older stamp; None if nobody has looked at all of them
        self._oldest: int | None = None
        cleanups = config.get_cleanup_strategies()
        self._incremental = cleanups.get_incremental_cleanup_strategy()
        self._compaction = cleanups.get_rocksdb_compact_filter_cleanup_strategy()
        self.in_snapshots = cleanups.in_full_snapshot()
        #: whether entries may have expired since the last compaction
        self.stale = False

    def end_epoch(self) -> None:
        """Check the entries that are owed."""
        owed = self._owed()
        if owed > 0 and (self._walk or self._may_be_over()):
            walk = self._walk or self._begin()
            self._walk = walk if self._step(walk, owed) else None

    def sweep(self) -> None:
        """Check all entries, if one of them may have expired."""
        if self._may_be_over():
            compaction, walk = self._compaction, self._begin()
            often = compaction.get_query_time_after_num_entries() if compaction else 1000
            while self._step(walk, max(often, 1)):
                pass
            self._walk = None

    def forget(self) -> None:
        """Begin anew with the next clean-up."""
        self._walk = self._oldest = None

    @property
    def in_bases(self) -> bool:
        """Return whether to check all entries when a base is written."""
        return self.in_snapshots or self._compaction is not None

    def visible(self, entry: Any) -> Any:
        """Return what functions see of an entry; None if that is nothing."""
        self._sweeper.deadline = -1 << 63 if self.life.returns_expired else self.life.deadline()
        return self._sweeper.visible(entry)

    def is_overdue(self, swept: int) -> bool:
        """Return whether the period of compaction has passed since that time."""
        if self._compaction is None:
            return False
        period = self._compaction.get_periodic_compaction_time().to_millis()
        return 0 < period <= self.life.clock() - swept

    def _may_be_over(self) -> bool:
        return self._oldest is None or self._oldest <= self.life.deadline()

    def _begin(self) -> Iterator[Any]:
        """Begin a round; what comes to the state from now on has a later stamp."""
        # NB: entries that reads removed are covered: they were as old as what this looks for.
        self.stale = True
        self._sweeper.oldest = self.life.clock()
        return self._sweeper.walk()

    def _step(self, walk: Iterator[Any], entries: int) -> bool:
        """Look at so many entries; return whether there were as many."""
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


class TtlStates:
    """The states of a backend that have a time-to-live."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._states: dict[_TableId, _TtlState] = {}

    def view(
        self,
        table_id: _TableId,
        descriptor: StateDescriptor,
        context: KeyContext,
        plain: Callable[[StateDescriptor, KeyContext], State],
        scan: Scan,
    ) -> State:
        """Return the state that a function works with.

        ``plain`` makes a backend's own view of the pairs, ``scan`` walks over its entries.
        """
        config = descriptor.ttl_config
        assert config is not None
        pairs = stamped(descriptor)
        view = plain(pairs, context)
        state = self._states.get(table_id)
        if state is None or state.config != config:
            aside = Aside(lambda other: plain(pairs, other))
            state = _TtlState(descriptor.kind, config, self.clock, scan, aside)
            self._states[table_id] = state
        return make_ttl_view(descriptor, view, state.aside, state.life)

    @property
    def in_snapshots(self) -> bool:
        """Return whether a checkpoint must not contain what is over, so that it needs a base."""
        return any(state.in_snapshots for state in self._states.values())

    def processed(self, operator: str, records: int) -> None:
        """Count records of an operator."""
        for (owner, _, _), state in self._states.items():
            if owner == operator:
                state.records += records

    def end_epoch(self) -> None:
        """Clean up incrementally."""
        for state in self._states.values():
            state.end_epoch()

    def before_base(self) -> None:
        """Clean up completely, as far as that was asked for."""
        for state in self._states.values():
            if state.in_bases:
                state.sweep()

    def clean_up_if_overdue(self, swept: int) -> bool:
        """Clean up completely if the period of a state has passed since that time (0: unknown).

        Return whether files hold expired entries now, so that they are to be compacted.
        """
        if swept == 0 or not any(state.is_overdue(swept) for state in self._states.values()):
            return False
        self.before_base()
        return self.stale

    @property
    def stale(self) -> bool:
        """Return whether files may hold expired entries of states that ask for compaction."""
        return any(state.in_bases and state.stale for state in self._states.values())

    def compacted(self) -> None:
        """Take note that no file holds entries that have been removed."""
        for state in self._states.values():
            state.stale = False

    def stale_states(self) -> list[_TtlState]:
        """Return the states of which files may hold expired entries."""
        return [state for state in self._states.values() if state.stale]

    def not_compacted(self, states: Iterable[_TtlState]) -> None:
        """Take back `compacted` for states that were stale before it."""
        for state in states:
            state.stale = True

    def forget(self) -> None:
        """Let go of walks that are under way: the state is another one."""
        for state in self._states.values():
            state.forget()

    def visible(
        self, table_id: _TableId, entries: Iterator[tuple[Any, Any, Any]]
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Return the entries as functions see them."""
        state = self._states.get(table_id)
        if state is None:
            return entries
        seen = ((key, space, state.visible(entry)) for key, space, entry in entries)
        return (entry for entry in seen if entry[2] is not None)
