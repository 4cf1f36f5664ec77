"""The interface of a keyed state backend: what the runtime needs, and what a backend promises.

One backend instance holds the state of one subtask of a level, for all its operators. In each
epoch the runtime of some worker process

1. brings an instance to the chain that the driver names (`restore`; step 2, Load),
2. lets functions work on it through the views that `keyed_state` returns (step 4, Process),
3. writes what changed as one file under the run's stamp (`persist`; step 6, Persist), and reports
   the chain that `persist` returned. Only if the driver accepts it, it is handed out as the head
   for the next epoch.

If anything fails in between, `discard` forgets the instance's contents; the next `restore` reads
them again. An instance whose chain was not accepted need not be told: `restore` notices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from holdfast.common.time import wall_clock
from holdfast.datastream.state import State, StateDescriptor
from holdfast.state.capture import Capture
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain
from holdfast.state.checked_views import checked_view
from holdfast.state.errors import StateCorruptionError, StateRegistrationError
from holdfast.state.files import BlobId, Section, StateFile, decode_file
from holdfast.state.key_groups import KeyGroupShare
from holdfast.state.mutations import WatchedKeyContext
from holdfast.state.storage import ReadableStorage, StateStorage
from holdfast.state.ttl import Clock
from holdfast.state.ttl_cleanup import TtlStates
from holdfast.state.views import KeyContext, KeyedMarks

__all__ = [
    "KeyedStateBackend",
    "Restored",
    "RestoredHow",
    "StateStatistics",
    "read_blobs",
    "read_file",
]


#: called with the entries of a state, and the keys that were loaded
Watcher = Callable[[Iterable[Any] | None], None]


class RestoredHow(Enum):
    """How a backend came to stand where it was told to."""

    #: it stood there already
    CURRENT = "current"
    #: it applied the files that it had missed
    CAUGHT_UP = "caught_up"
    #: it read everything, from the base on
    REBUILT = "rebuilt"


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    how: RestoredHow
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class StateStatistics:
    """How much state there is."""

    #: by operator and state
    entries: Mapping[tuple[str, str], int]
    #: entries that changed since the last write
    changed: int
    files: int
    file_bytes: int


class KeyedStateBackend(ABC):
    """The keyed state, and the blobs, of one subtask."""

    def __init__(self, key_groups: range, max_parallelism: int) -> None:
        """Own these key groups, of operators that `assign` gives no others."""
        self._default = KeyGroupShare(key_groups, max_parallelism)
        self._shares: dict[str, KeyGroupShare] = {}
        #: `capture` must call its `before_base` if everything is written anew
        self._ttl = TtlStates(wall_clock)

    def use_clock(self, clock: Clock) -> None:
        """Measure time-to-live with this clock, not the machine's; called before all else."""
        self._ttl = TtlStates(clock)

    def assign(self, operator: str, share: KeyGroupShare) -> None:
        """Say which key groups of an operator are this subtask's."""
        self._shares[operator] = share

    def share(self, operator: str) -> KeyGroupShare:
        """Return the key groups of an operator that are this subtask's."""
        return self._shares.get(operator, self._default)

    def keyed_state(
        self,
        operator: str,
        descriptor: StateDescriptor,
        context: KeyContext,
        namespaced: bool = False,
    ) -> State:
        """Return a view of a state at the context's key; of its key and namespace if namespaced.

        Views stay valid through `restore`, `persist` and `discard`. States of one name with and
        without namespace are two states. Raise a StateRegistrationError if the operator has a
        state of that name that is of another kind or type, a StateMigrationError if it was saved
        as another kind, with or without time-to-live unlike now, or its saved values do not fit
        the type. If the context is a `WatchedKeyContext`, changes in place are looked for.
        """

        def make(known: StateDescriptor) -> State:
            return self._unchecked_state(operator, known, context, namespaced)

        if isinstance(context, WatchedKeyContext):
            return checked_view(descriptor, context, namespaced, make)
        return make(descriptor)

    def _unchecked_state(
        self, operator: str, descriptor: StateDescriptor, context: KeyContext, namespaced: bool
    ) -> State:
        if descriptor.ttl_config is None:
            return self._plain_state(operator, descriptor, context, namespaced)
        return self._ttl.view(
            (operator, descriptor.name, namespaced),
            descriptor,
            context,
            lambda pairs, at: self._plain_state(operator, pairs, at, namespaced),
            lambda: self._scan(operator, descriptor.name, namespaced) or iter(()),
        )

    @abstractmethod
    def _plain_state(
        self, operator: str, descriptor: StateDescriptor, context: KeyContext, namespaced: bool
    ) -> State:
        """Do what `keyed_state` says.

        A descriptor with a time-to-live asks for the pairs of `holdfast.state.ttl`, which is no
        more than a mark that is saved with the state.
        """

    def processed(self, operator: str, records: int) -> None:
        """Take note that an operator was given records."""
        self._ttl.processed(operator, records)

    @abstractmethod
    def marks(self, operator: str, state: str, loaded: Watcher) -> KeyedMarks:
        """Return a state of marks, of which a key has one, or none, in each namespace.

        ``loaded`` is called when marks are loaded from files, with those that changed (some may
        be gone), and when all is forgotten, with None; at once for what there is already.
        """

    @abstractmethod
    def get_blob(self, operator: str, name: str) -> bytes | None:
        """Return an operator's bytes of that name; None if there are none."""

    @abstractmethod
    def set_blob(self, operator: str, name: str, data: bytes | None) -> None:
        """Set an operator's bytes of that name; None removes them. Equal bytes are no change."""

    @abstractmethod
    def restore(self, storage: StateStorage, chain: Chain) -> Restored:
        """Bring this instance to the chain, as cheaply as it can be done.

        Changes that were not persisted are lost. If it raises, the instance holds nothing.
        """

    def end_epoch(self) -> None:
        """Do what is due at the end of each epoch, whether or not state is written then.

        State with a time-to-live is cleaned up incrementally. `persist` does this itself.
        """
        self._ttl.end_epoch()

    @abstractmethod
    def persist(
        self, storage: StateStorage, stamp: str, epoch: int, durable: bool = False
    ) -> Chain:
        """Write what changed since the last persist or restore, and return the chain.

        It is `end_epoch`, `capture` and `Capture.write` in one. The file is called
        ``{stamp}.state``. If nothing changed, nothing is written and the chain is returned as it
        was. If the write fails, the changes are still there to be written. ``durable`` says that a
        checkpoint ends here; it concerns this file only: see `StateStorage.sync` for those before.
        """

    @abstractmethod
    def capture(self, stamp: str, epoch: int, durable: bool = False) -> Capture:
        """Take what `persist` would write, as it stands now, to be written by another thread.

        It is fast: what takes long is done by `Capture.write`. State may be changed, and other
        captures taken, before that is called; changes do not show in it. Captures are to be
        written in the order they were taken. If one could not be written, what it has is in the
        next one that is taken; those that were taken meanwhile fail.
        """

    def keep_files(self, names: Container[str]) -> None:
        """Let go of what the host has of other state files than these; from any thread.

        No file may be written meanwhile by `Capture.write`.
        """

    @abstractmethod
    def discard(self) -> None:
        """Forget everything that is in memory."""

    def close(self, ended: bool = False) -> None:
        """Let go of what the instance holds besides memory; it is not used again.

        ``ended``: nor will the job's state be.
        """

    @abstractmethod
    def import_key_groups(
        self,
        storage: StateStorage,
        chains: Iterable[Chain],
        operators: Container[str] | None = None,
    ) -> int:
        """Take over this instance's key groups from other subtasks' chains; return the bytes read.

        ``operators``: only their states. What was there before is forgotten. The next `persist`
        writes a base of its own. Blobs belong to no key group and are not taken over; see
        `read_blobs`.
        """

    def entries(self, operator: str, state: str) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (key, namespace, value) of a state that the job has declared.

        The namespace is None for state without one. What has expired does not show.
        """
        scans = {spaced: self._scan(operator, state, spaced) for spaced in (False, True)}
        if not any(scans.values()):
            message = f"operator {operator!r} has declared no state {state!r}"
            raise StateRegistrationError(message)
        for namespaced, scan in scans.items():
            if scan is not None:
                yield from self._ttl.visible((operator, state, namespaced), scan)

    @abstractmethod
    def _scan(
        self, operator: str, state: str, namespaced: bool
    ) -> Iterator[tuple[Any, Any, Any]] | None:
        """Return (key, namespace, entry) of a state one by one; None if it is not declared.

        The entry is a value or accumulator, a list or a dict, and the caller must not change it.
        The walk may be taken up again after changes and `persist`: what changed since it began may
        or may not show. `TtlStates.forget` ends the walks that are kept.
        """

    @abstractmethod
    def section_of(self, operator: str, state: str, namespaced: bool, key: Any) -> Section | None:
        """Return what a key has in a state now, as a file would hold it.

        Without chunks if it has nothing; None if the job has declared no such state.
        """

    @abstractmethod
    def stateful(self, blob: str) -> set[str]:
        """Return the operators that have keyed state here, or a blob of that name."""

    @abstractmethod
    def states(self) -> dict[str, list[SavedState]]:
        """Return the keyed states that have entries here, by operator, with the types they have.

        Those that nobody has declared yet, with the types that they were saved with.
        """

    @abstractmethod
    def statistics(self) -> StateStatistics:
        """Return how much state there is."""


def read_blobs(storage: StateStorage, chain: Chain) -> dict[BlobId, bytes]:
    """Return all blobs of a chain, by operator and name."""
    blobs: dict[BlobId, bytes] = {}
    for ref in chain.files:
        for blob_id, data in read_file(storage, ref.name, ref.size).blobs.items():
            if data is None:
                blobs.pop(blob_id, None)
            else:
                blobs[blob_id] = bytes(data)
    return blobs


def read_file(storage: ReadableStorage, name: str, size: int) -> StateFile:
    """Return a state file that has that size, or raise an error that names it."""
    data = storage.read(name)
    if len(data) != size:
        message = f"state file {name!r} cannot be used: expected {size} bytes, found {len(data)}"
        raise StateCorruptionError(message)
    return decode_file(data, name)
