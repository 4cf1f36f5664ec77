"""Finds the checkpoint or savepoint that an attempt of a job starts from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import Configuration
from holdfast.common.options.recovery import (
    AFRESH,
    CLAIM_MODE,
    NON_RESTORED_STATE,
    PICKLED_STATE,
    RESTORE_PATH,
    ClaimMode,
)
from holdfast.driver.start import fit
from holdfast.filesystem import FileSystem
from holdfast.history.events import origin_of
from holdfast.plan.model import Plan

#: stands for the instruction to start without a checkpoint; it is not an address
_AFRESH: Final = ""


class JobStart:
    """Finds where a job starts, from its settings and its checkpoint directory.

    Attributes:
        image: what the first attempt starts from; None: from the beginning.
        claimed: the savepoint to delete once there is a checkpoint, if `find` returned one that
            the job claims.
    """

    def __init__(
        self,
        configuration: Configuration,
        store: CheckpointStore,
        files: FileSystem,
        savepoints: str | None,
    ) -> None:
        """Find nothing yet; ``savepoints`` is the default directory of the job's savepoints."""
        self.image: SavedImage | None = None
        self.claimed: str | None = None
        self._configuration = configuration
        self._store = store
        self._files = files
        self._savepoints = savepoints

    def find(self, restores: bool) -> None:
        """Find what the first attempt starts from.

        ``restores``: the job continues from its own checkpoints, unless it is told otherwise.
        """
        self.image = self._found(restores)

    def _found(self, restores: bool) -> SavedImage | None:
        path = RESTORE_PATH.find(self._configuration)
        told = _AFRESH if path is None and AFRESH.get(self._configuration) else path
        since = self._store.notes.told_to_begin(told) if restores else []
        if since or (restores and told is None):
            latest = self._store.latest(deep=True, among=since or None)
            return None if latest is None else self._store.image(latest)
        return None if path is None else self._saved(path)

    def after_failure(self, completed: Sequence[int], suspects: bool) -> SavedImage | None:
        """Return what the next attempt starts from: the last intact one of these checkpoints.

        If there is none, the next attempt starts where the first did. ``suspects``: a state file
        may be damaged, so all files are read.
        """
        latest = self._store.latest(deep=suspects, among=completed)
        return self.image if latest is None else self._store.image(latest)

    def next_origin(self, completed: Sequence[int]) -> str:
        """Return, as text, what the next attempt would start from."""
        if completed:
            return origin_of(completed[-1], savepoint=False, again=True)
        metadata = None if self.image is None else self.image.metadata
        if metadata is None:
            return origin_of(None, savepoint=False, again=True)
        return origin_of(metadata.id, metadata.savepoint, again=True)

    def fitted(self, plan: Plan, start: SavedImage) -> Plan:
        """Return a plan, fitted to a checkpoint.

        Raises:
            JobDefinitionError: when the plan does not fit it.
            StateError: when the states of the plan do not.
        """
        return fit(plan, start.metadata, NON_RESTORED_STATE.get(self._configuration))

    def _saved(self, address: str) -> SavedImage:
        image = read_savepoint(address, self._files)
        if _is_same(image.storage.address, self._store.state.address):
            return replace(image, own=True)
        if CLAIM_MODE.get(self._configuration) is ClaimMode.CLAIM and image.metadata.savepoint:
            self.claimed = image.address
        return replace(image, trusted=self._trusts(image.address))

    def _trusts(self, address: str) -> bool:
        """Return whether a checkpoint may be unpickled: it is the job's own, or this is enabled."""
        if PICKLED_STATE.get(self._configuration):
            return True
        own = [self._store.address]
        if self._savepoints is not None:
            system, path = self._files.locate(self._savepoints)
            own.append(system.uri(path))
        return any(_is_within(address, place) for place in own)


def _is_same(address: str, other: str) -> bool:
    """Return whether two addresses are the same directory; local ones may differ by links."""
    return os.path.realpath(address) == os.path.realpath(other)


def _is_within(address: str, directory: str) -> bool:
    return PurePosixPath(os.path.realpath(address)).is_relative_to(os.path.realpath(directory))
