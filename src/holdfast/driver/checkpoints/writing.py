"""Writes a checkpoint of a job, or a savepoint: what its metadata contains, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.checkpoint.events import WriteMetadata
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage
from holdfast.checkpoint.savepoints import copy_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.driver.epoch_book import EpochBook
from holdfast.driver.start import operator_images
from holdfast.filesystem import FileSystem
from holdfast.plan.model import Plan
from holdfast.runtime.context import Clock
from holdfast.state.storage.directory import StateStorage


class CheckpointWriter:
    """Writes the metadata of checkpoints, when all their state is stored (step 9)."""

    def __init__(
        self, store: CheckpointStore, storage: StateStorage, files: FileSystem, clock: Clock
    ) -> None:
        """Write to a store; ``files`` finds the file systems of savepoints."""
        self._store = store
        self._storage = storage
        self._files = files
        self._clock = clock
        #: the state files of the previous checkpoint
        self._known_files: dict[str, int] = {}

    def image(
        self,
        order: WriteMetadata,
        plan: Plan,
        book: EpochBook,
        log: Callable[[], Mapping[str, bytes]],
    ) -> CheckpointMetadata:
        """Return what is known about a checkpoint when its epoch is accepted."""
        return CheckpointMetadata(
            id=order.checkpoint_id,
            timestamp=self._clock(),
            epoch=order.epoch,
            job_name=plan.name,
            savepoint=False,
            levels=tuple(LevelImage(len(heads), tuple(heads)) for heads in book.heads),
            operators=operator_images(plan, book.stateful, book.states),
            spark=dict(log()),
        )

    def put_in_place(self, order: WriteMetadata, metadata: CheckpointMetadata) -> str:
        """Write a checkpoint to its directories; return the path to report."""
        path = self._store.address_of(order.checkpoint_id)
        directory = None if order.savepoint is None else order.savepoint.directory
        if directory is not None:
            path = copy_savepoint(metadata, self._storage, directory, self._files)
        if order.in_store:
            self._store.write(metadata)
        return path

    def count_new(self, sizes: Mapping[str, int]) -> int:
        """Return how many bytes of a checkpoint's files are new since the previous one."""
        written = sum(size for name, size in sizes.items() if name not in self._known_files)
        self._known_files = dict(sizes)
        return written
