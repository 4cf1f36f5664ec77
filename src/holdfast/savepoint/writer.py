"""`SavepointWriter`: creates savepoints from data and from other savepoints."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from holdfast.checkpoint.directory import METADATA, STATE
from holdfast.checkpoint.errors import CheckpointStorageError
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage, OperatorImage, encode
from holdfast.common.time import wall_clock
from holdfast.common.typeinfo import TypeInformation, type_info_of
from holdfast.datastream.state import StateDescriptor
from holdfast.filesystem import file_system_of
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.savepoint.changes import SavepointChanges
from holdfast.savepoint.made_states import KeyedLayout, PartWriter, WrittenPart
from holdfast.savepoint.savepoint import Savepoint
from holdfast.savepoint.sources import Entry, KeyedState, OperatorState, Timers, is_frame
from holdfast.state.errors import StateLookupError
from holdfast.state.format.catalog import SavedState, merged
from holdfast.state.format.files import StateFile, encode_file
from holdfast.state.format.head import FileRef, Head
from holdfast.state.key_groups import DEFAULT_MAX_PARALLELISM
from holdfast.state.live.operator_state import (
    SPLIT,
    ListImage,
    OperatorStateBackend,
    encode_image,
    redistribute,
    saved_states,
)
from holdfast.state.storage.directory import DirectoryStateStorage
from holdfast.state.types.schema_of import schema_of


@dataclass(frozen=True)
class _NewOperator:
    uid: str
    name: str
    max_parallelism: int
    key_type: TypeInformation | None
    states: tuple[KeyedState | Timers | OperatorState, ...]


class SavepointWriter:
    """Creates a savepoint from new operators, and from changed operators of another savepoint.

    >>> from holdfast.common import Types
    >>> from holdfast.datastream.state import ValueStateDescriptor
    >>> counts = KeyedState(ValueStateDescriptor("count", Types.LONG()), {"ann": 3, "bob": 1})
    >>> writer = SavepointWriter(job_name="visits").with_operator("visits", counts)

    Nothing is read or written before `write`. Each method returns the writer.
    """

    def __init__(
        self,
        existing: Savepoint | None = None,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        job_name: str | None = None,
    ) -> None:
        """Start empty, or with another savepoint, which is not changed.

        Args:
            existing: the other savepoint or checkpoint.
            max_parallelism: the number of key groups of new operators. A job uses the same number,
                unless it sets another one.
            job_name: a name for display; by default that of the other savepoint.
        """
        self._existing = existing
        self._max_parallelism = max_parallelism
        self._job_name = job_name or ("made" if existing is None else existing.job_name)
        self._changes = None if existing is None else SavepointChanges(existing)
        self._new: dict[str, _NewOperator] = {}

    def with_operator(
        self,
        uid: str,
        *states: KeyedState | Timers | OperatorState,
        key_type: TypeInformation | type | None = None,
        name: str | None = None,
        max_parallelism: int | None = None,
    ) -> SavepointWriter:
        """Add an operator with its state.

        Args:
            uid: the uid of the operator in the job.
            states: its states.
            key_type: the type of its keys, as passed to ``key_by``. It is required if keys are
                objects, such as rows or dataclasses, since they are plain records in the data.
            name: a name for display; by default the uid.
            max_parallelism: the number of key groups; by default that of the writer.
        """
        if uid in self._new or (self._changes is not None and uid in self._changes.uids()):
            message = f"the savepoint has an operator with the uid '{uid}' already; drop it first"
            raise ValueError(message)
        self._new[uid] = _NewOperator(
            uid,
            name or uid,
            max_parallelism or self._max_parallelism,
            type_info_of(key_type),
            states,
        )
        return self

    def drop(self, operator: str) -> SavepointWriter:
        """Drop an operator with all its state."""
        self._changes_of(operator).drop(operator)
        return self

    def drop_state(self, operator: str, state: str) -> SavepointWriter:
        """Drop a state of an operator."""
        self._changes_of(operator).drop_state(operator, state)
        return self

    def rename(self, operator: str, uid: str) -> SavepointWriter:
        """Change the uid of an operator, so that another operator of the job gets its state."""
        if uid in self._new:
            message = f"the savepoint has an operator with the uid '{uid}' already"
            raise ValueError(message)
        self._changes_of(operator).rename(operator, uid)
        return self

    def map(
        self,
        operator: str,
        state: str,
        function: Callable[[Any], Any],
        descriptor: StateDescriptor | None = None,
    ) -> SavepointWriter:
        """Change the values of a keyed state.

        Args:
            operator: its uid, or its name if it is unique.
            state: the name of the state.
            function: takes the value of a key, a list or a dict for list and map states, as a plain
                value, and returns the new one; None removes the key.
            descriptor: the new descriptor of the state, if its type or kind changes.
        """
        self._changes_of(operator).map(operator, state, function, descriptor)
        return self

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the savepoint to a new or empty directory, and return its address.

        The savepoint becomes valid when it is complete. If this raises, nothing is left of it.
        """
        files, place = file_system_of(os.fspath(path))
        directory = PurePosixPath(place)
        if files.list_directory(str(directory)):
            message = f"cannot write a savepoint to '{files.uri(str(directory))}': it is not empty"
            raise CheckpointStorageError(message)
        files.make_private(str(directory))
        try:
            files.make_directories(str(directory / STATE))
            storage = DirectoryStateStorage(directory / STATE, files)
            metadata = self._write(storage)
            _let_go(storage, metadata)
            storage.sync(metadata.files())
            files.write(str(directory / METADATA), encode(metadata), durable=True)
        except BaseException:
            with contextlib.suppress(OSError):
                files.delete_tree(str(directory))
            raise
        return files.uri(str(directory))

    def _changes_of(self, operator: str) -> SavepointChanges:
        if self._changes is None:
            message = (
                f"there is no operator '{operator}' to change: the writer has no other savepoint"
            )
            raise StateLookupError(message)
        return self._changes

    def _write(self, storage: DirectoryStateStorage) -> CheckpointMetadata:
        levels: list[LevelImage] = []
        operators: dict[str, OperatorImage] = {}
        if self._changes is not None:
            levels, operators = self._changes.write(storage)
        for new in self._new.values():
            heads, states = _write_operator(new, storage)
            operators[new.uid] = OperatorImage(
                new.name,
                "made",
                len(heads),
                new.max_parallelism,
                len(levels),
                stateful=bool(states),
                states=states,
                key_type=schema_of(new.key_type),
            )
            levels.append(LevelImage(len(heads), heads))
        before = None if self._existing is None else self._existing.image.metadata
        return CheckpointMetadata(
            id=before.id if before else 1,
            timestamp=wall_clock(),
            epoch=before.epoch if before else 0,
            job_name=self._job_name,
            savepoint=True,
            levels=tuple(levels),
            operators=operators,
            spark=before.spark if before else {},
        )


def _write_operator(
    operator: _NewOperator, storage: DirectoryStateStorage
) -> tuple[tuple[Head, ...], tuple[SavedState, ...]]:
    keyed = [state for state in operator.states if not isinstance(state, OperatorState)]
    frames = [state.data for state in keyed if is_frame(state.data)]
    parts = 1
    if frames:
        from holdfast.savepoint.frames import number_of_parts

        parts = number_of_parts(frames[0], operator.max_parallelism)
    files: list[list[tuple[str, int]]] = [[] for _ in range(parts)]
    states: list[SavedState] = []
    for state in keyed:
        layout = state.layout(operator.uid, operator.max_parallelism, operator.key_type)
        written = _write_keyed(state, layout, parts, storage)
        for part in written:
            files[part.part].append((part.name, part.size))
        states.append(layout.saved(any(part.pickled for part in written)))
    images = _images(operator, parts)
    for number, image in enumerate(images):
        if image:
            name = f"made-{uuid.uuid4().hex}.state"
            blobs = {(operator.uid, OPERATOR_STATE): encode_image(image)}
            data = encode_file(StateFile((), blobs), name)
            storage.write(name, data)
            files[number].append((name, len(data)))
            states += saved_states(image)
    return tuple(map(_head, files)), merged(states)


def _head(files: list[tuple[str, int]]) -> Head:
    """Return a head of files, each as if an epoch had written it."""
    refs = [FileRef(name, size, at - 1, at) for at, (name, size) in enumerate(files)]
    return Head(tuple(refs), tuple(ref.name for ref in refs[-1:]))


def _images(operator: _NewOperator, parts: int) -> list[dict[str, ListImage]]:
    """Return the operator state of each part; union and broadcast states are in the first."""
    states = OperatorStateBackend(operator.uid)
    for state in operator.states:
        if isinstance(state, OperatorState):
            state.put_into(states)
    image = states.image()
    split = {name: part for name, part in image.items() if part.mode == SPLIT}
    dealt = redistribute([split], parts)
    dealt[0] |= {name: part for name, part in image.items() if name not in split}
    return dealt


def _write_keyed(
    state: KeyedState | Timers, layout: KeyedLayout, parts: int, storage: DirectoryStateStorage
) -> list[WrittenPart]:
    if is_frame(state.data):
        from holdfast.savepoint.frames import write_frame

        return write_frame(state, layout, parts, storage.address)
    writers = [PartWriter(layout, part) for part in range(parts)]
    for entries in _batches(state, layout):
        for part, some in layout.dealt(entries, parts).items():
            writers[part].add(some)
    return [writer.finish(storage) for writer in writers]


def _batches(state: KeyedState | Timers, layout: KeyedLayout) -> Iterator[list[Entry]]:
    data = state.data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        missing = [name for name in state.columns if name not in data.column_names]
        if missing:
            message = (
                f"{layout.place}: the table has no column {', '.join(map(repr, missing))}; it has "
                f"{', '.join(map(repr, data.column_names))}"
            )
            raise StateLookupError(message)
        for batch in data.select(state.columns).to_batches():
            yield list(state.entries(layout, batch))
    else:
        yield list(state.pairs(layout))


def _let_go(storage: DirectoryStateStorage, metadata: CheckpointMetadata) -> None:
    """Delete files of tasks that Spark ran twice."""
    needed = metadata.files()
    for file in storage.list():
        if file.name not in needed:
            storage.delete(file.name)
