"""The interface of a keyed state backend: what the runtime needs, and what a backend promises.

One backend instance holds the state of one subtask of a level, for all its operators. In each
epoch, the runtime of a worker process

1. restores the instance to the head that the driver names (`restore`; step 2, Load),
2. runs functions, which use the views that `keyed_state` returns (step 4, Process),
3. writes what changed to one file under the stamp of the run (`persist`; step 6, Persist), and
   reports the head that `persist` returned. If the driver accepts it, the next epoch starts from
   that head.

If anything fails in between, `discard` clears the instance, and the next `restore` reads the files
again. If the driver did not accept a head, the instance need not be told: `restore` detects it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from typing import Any, ClassVar

from holdfast.common.time import wall_clock
from holdfast.state.backends.capture import Capture
from holdfast.state.backends.change_log import ChangeLog
from holdfast.state.backends.declared import DeclaredTables, Watcher
from holdfast.state.backends.taking_over import take_over_key_groups
from holdfast.state.columns.state import ColumnState
from holdfast.state.columns.tables import ColumnTables
from holdfast.state.descriptors import (
    ColumnStateDescriptor,
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.state.errors import StateRegistrationError
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.files import BlobId, Section
from holdfast.state.format.head import Head
from holdfast.state.key_groups import KeyGroupShare, KeyGroupShares
from holdfast.state.live.checked_views import checked_view
from holdfast.state.live.column_rows import ColumnRows
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.mutations import WatchedKeyContext
from holdfast.state.live.tables import Table
from holdfast.state.live.ttl.cleanup import TtlStates
from holdfast.state.live.ttl.lifetime import Clock
from holdfast.state.live.views import KeyedMarks, make_view
from holdfast.state.names import StateId
from holdfast.state.storage.directory import ReadableStorage, StateStorage


class KeyedStateBackend(ABC):
    """The keyed state, and the blobs, of one subtask.

    Attributes:
        shares: the key groups that this subtask owns.
        columns: the keys and columns of operators whose states are in columns.
    """

    #: whether `read_ahead` should be called before records are processed
    reads_ahead: ClassVar[bool] = False

    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        """Own these key groups, for operators without key groups of their own."""
        self.shares = KeyGroupShares(KeyGroupShare(key_groups, max_parallelism))
        self.columns = ColumnTables()
        self._tables = DeclaredTables()
        #: `_capture` must call its `before_base` before it writes a new base
        self._ttl = TtlStates(wall_clock)
        self._log = ChangeLog(self._tables, self._ttl)

    def use_clock(self, clock: Clock) -> None:
        """Use this clock for time-to-live instead of the machine's; call it first."""
        self._ttl.clock = clock

    def keyed_state(
        self,
        operator: str,
        descriptor: StateDescriptor,
        context: KeyContext,
        namespaced: bool = False,
    ) -> State:
        """Return a view of a state at the context's key; of its key and namespace if namespaced.

        Views stay valid through `restore`, `persist` and `discard`. A state with namespaces and one
        without are two states, even if they have the same name. If the context is a
        `WatchedKeyContext`, changes in place are detected.

        Raises:
            StateRegistrationError: when the operator has a state of that name with another kind or
                type.
            StateMigrationError: when the state was saved as another kind, only one of the two has a
                time-to-live, or the saved values do not fit the type.
        """
        if isinstance(descriptor, ColumnStateDescriptor):
            return self.column_state(operator, descriptor, namespaced)  # type: ignore[return-value]

        def make(known: StateDescriptor) -> State:
            return self._unchecked_state(operator, known, context, namespaced)

        if isinstance(context, WatchedKeyContext):
            return checked_view(descriptor, context, namespaced, make)
        return make(descriptor)

    def _unchecked_state(
        self, operator: str, descriptor: StateDescriptor, context: KeyContext, namespaced: bool
    ) -> State:
        state = StateId(operator, descriptor.name, namespaced)

        def find(known: StateDescriptor) -> Table[Any]:
            return self._tables.find(state, known, self._declare)

        if descriptor.ttl_config is None:
            return make_view(descriptor, find(descriptor), context)
        return self._ttl.view(
            state, descriptor, context, find, lambda: self._scan(*state) or iter(())
        )

    @abstractmethod
    def _declare(self, state: StateId, descriptor: StateDescriptor) -> Table[Any]:
        """Return a table for a state, with its contents from files; if it raises, change nothing.

        If the descriptor has a time-to-live, entries are the pairs of
        `holdfast.state.live.ttl.lifetime`. Files only have a mark that says so.
        """

    def column_state(
        self, operator: str, descriptor: ColumnStateDescriptor, namespaced: bool = False
    ) -> ColumnState:
        """Return a state in columns; see `keyed_state` for the errors."""
        state = StateId(operator, descriptor.name, namespaced)
        table = self.columns.of(operator, namespaced)
        is_new = descriptor.name not in table.columns
        try:
            rows = self._tables.find(state, descriptor, self._declare)
        except BaseException:
            if is_new:
                table.columns.pop(descriptor.name, None)
            raise
        assert isinstance(rows, ColumnRows)
        if descriptor.ttl_config is not None:
            self._ttl.watch_column(state, descriptor.ttl_config, rows.column)
        return ColumnState(table, descriptor.name)

    def read_ahead(self, operator: str, keys: list[Any]) -> None:
        """Prepare for records of an operator that have these keys, if `reads_ahead`."""

    def processed(self, operator: str, records: int) -> None:
        """Count the records that an operator processed."""
        self._ttl.processed(operator, records)

    def marks(self, operator: str, state: str, loaded: Watcher) -> KeyedMarks:
        """Return a state of marks: a key has at most one mark in each namespace.

        ``loaded`` is called with the marks that changed when marks are loaded from files (some may
        have been removed), and with None when everything was discarded. It is called at once for
        the marks that exist already.
        """
        state_id = StateId(operator, state, namespaced=True)
        self._tables.find(state_id, ValueStateDescriptor(state), self._declare)
        return self._tables.watch(state_id, loaded)

    def get_blob(self, operator: str, name: str) -> bytes | None:
        """Return the blob of an operator with that name; None if there is none."""
        return self._log.blobs.live.get((operator, name))

    def set_blob(self, operator: str, name: str, data: bytes | None) -> None:
        """Set a blob of an operator; None removes it. Setting equal bytes is no change."""
        self._log.blobs.set((operator, name), data)

    @abstractmethod
    def restore(self, storage: StateStorage, head: Head) -> int:
        """Restore this instance to the head, and reuse what it already has.

        Return the number of bytes that were read from files. Changes that were not persisted are
        lost. If it raises, the instance is empty.
        """

    def end_epoch(self) -> None:
        """Clean up expired state incrementally.

        Call it at the end of each epoch, whether or not state is written; `persist` does.
        """
        self._ttl.end_epoch()
        self.columns.forget_unused_keys()

    def persist(self, storage: StateStorage, stamp: str, epoch: int, durable: bool = False) -> Head:
        """Write what changed since the last persist or restore, and return the head.

        This combines `end_epoch`, `capture` and `Capture.write`. The name of the file is
        ``{stamp}.state``. If nothing changed, nothing is written and the head stays the same. If
        the write fails, the changes are kept for the next one. ``durable``: a checkpoint ends here.
        It applies to this file only; for earlier files see `StateStorage.sync`.
        """
        self._ttl.end_epoch()
        self.columns.forget_unused_keys()
        # NB: written before anything can change, so no copy is needed.
        capture = self._capture(stamp, epoch, durable, beside=False)
        try:
            return capture.write(storage)
        finally:
            self._settle()

    def capture(self, stamp: str, epoch: int, durable: bool = False) -> Capture:
        """Capture what `persist` would write, so that another thread can write it.

        This is fast; `Capture.write` does the slow part. State may change, and other captures may
        be taken, before a capture is written: it has the state as of now. Write captures in the
        order in which they were taken. If one cannot be written, the captures after it fail too,
        and the next new capture contains the changes of all of them.
        """
        return self._capture(stamp, epoch, durable, beside=True)

    @abstractmethod
    def _capture(self, stamp: str, epoch: int, durable: bool, beside: bool) -> Capture:
        """Capture what is to be written; ``beside``: state may change before it is written."""

    def _settle(self) -> None:
        """Record which captures were written and which ones failed."""
        self._log.settle()

    def keep_files(self, names: Container[str]) -> None:
        """Delete the host's copies of all other state files; can be called from any thread.

        `Capture.write` must not run at the same time.
        """

    @abstractmethod
    def discard(self) -> None:
        """Clear everything in memory."""

    def close(self, ended: bool = False) -> None:
        """Release all resources; the instance is not used again.

        ``ended``: the job has ended, so its state is not needed any more either.
        """

    def import_key_groups(
        self,
        storage: ReadableStorage,
        heads: Iterable[Head],
        operators: Container[str] | None = None,
    ) -> list[dict[BlobId, bytes]]:
        """Take over this instance's key groups from other subtasks' heads; return their blobs.

        Every file is read once; tables without rows of these key groups are not read. The previous
        contents are discarded, and the next `persist` writes a new base. ``operators``: take over
        only their states. Blobs belong to no key group and are not taken over; instead, the blobs
        of each head are returned.
        """
        self.discard()
        try:
            blobs = take_over_key_groups(
                storage,
                heads,
                self.shares,
                operators,
                lambda section: self._load_section(section, -1),
            )
        except BaseException:
            self.discard()
            raise
        self._log.needs_base = bool(self.states())
        return blobs

    @abstractmethod
    def _load_section(self, section: Section, until: int) -> None:
        """Load a section of the file that ends at ``until``, or keep it unread."""

    def entries(self, operator: str, state: str) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (key, namespace, value) of a state that the job has declared.

        The namespace is None for state without one. Expired entries are left out.
        """
        scans = {spaced: self._scan(operator, state, spaced) for spaced in (False, True)}
        if not any(scans.values()):
            message = f"operator {operator!r} has declared no state {state!r}"
            raise StateRegistrationError(message)
        for namespaced, scan in scans.items():
            if scan is not None:
                yield from self._ttl.visible(StateId(operator, state, namespaced), scan)

    @abstractmethod
    def _scan(
        self, operator: str, state: str, namespaced: bool
    ) -> Iterator[tuple[Any, Any, Any]] | None:
        """Return (key, namespace, entry) of a state one by one; None if it is not declared.

        An entry is a value, an accumulator, a list or a dict; the caller must not change it. The
        iteration may continue after changes and after `persist`: later changes may or may not be
        seen. `TtlStates.forget` ends the iterations that are kept.
        """

    def section_of(self, operator: str, state: str, namespaced: bool, key: Any) -> Section | None:
        """Return the current entries of a key in a state, in the form of a file section.

        The section has no chunks if there are none. None: the job has declared no such state.
        """
        max_parallelism = self.shares.of(operator).max_parallelism
        return self._tables.section_of(StateId(operator, state, namespaced), key, max_parallelism)

    def stateful(self, blob: str) -> set[str]:
        """Return the operators that have keyed state here, or a blob of that name."""
        with_blob = {operator for operator, name in self._log.blobs.live if name == blob}
        return with_blob | self.states().keys()

    def states(self) -> dict[str, list[SavedState]]:
        """Return the keyed states that have entries, by operator, with their types.

        States that are not declared yet have the types with which they were saved.
        """
        states: dict[str, list[SavedState]] = {}
        for s in (*self._live(), *self._log.unread.after(None)):
            pickled = s.id in self._log.pickled
            saved = SavedState(s.state, s.kind, s.types, s.namespaced, pickled, s.expires)
            states.setdefault(s.operator, []).append(saved)
        return states

    @abstractmethod
    def _live(self) -> Iterable[Section]:
        """Return a section, without chunks, for each state whose entries have been read."""
