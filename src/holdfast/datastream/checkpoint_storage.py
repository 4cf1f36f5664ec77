"""The storage of checkpoints: settings only, stored in a configuration.

Holdfast writes every checkpoint as files. Without a directory they are in the directory of the
running job and are deleted with it: its restarts can use them, a new start of the program cannot.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final

from holdfast.common import Configuration
from holdfast.common.options.setting import count, memory, text
from holdfast.errors import ConfigurationError

__all__ = ["CheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]

_JOB_MANAGER: Final = "jobmanager"
_FILE_SYSTEM: Final = "filesystem"

_DEFAULT_THRESHOLD: Final = 20 * 1024
_DEFAULT_BUFFER: Final = 4 * 1024

DIRECTORY: Final = text(
    "execution.checkpointing.dir",
    older=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
SAVEPOINT_DIRECTORY: Final = text(
    "execution.checkpointing.savepoint-dir",
    older=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
_STORAGE: Final = text("execution.checkpointing.storage", older=("state.checkpoint-storage",))
_THRESHOLD: Final = memory(
    "execution.checkpointing.data-inline-threshold",
    _DEFAULT_THRESHOLD,
    least=0,
    older=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
)
_BUFFER: Final = count(
    "execution.checkpointing.write-buffer-size",
    _DEFAULT_BUFFER,
    least=0,
    older=("state.storage.fs.write-buffer-size", "state.backend.fs.write-buffer-size"),
)


class CheckpointStorage:
    """Base of the storages of checkpoints."""


@dataclass(frozen=True)
class JobManagerCheckpointStorage(CheckpointStorage):
    """A storage whose checkpoints are deleted with the job, for tests and first steps.

    In Flink they are in the memory of the job manager; here they are files in the directory of
    the running job, or in ``checkpoint_path``, so that no state is too large and
    ``max_state_size`` has no effect.
    """

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 * 1024 * 1024

    checkpoint_path: str | None = None
    max_state_size: int | None = None
    savepoint_path: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the arguments."""
        _paths(self, "checkpoint_path", "savepoint_path")
        if self.max_state_size is None:
            object.__setattr__(self, "max_state_size", self.DEFAULT_MAX_STATE_SIZE)
        elif self.max_state_size < 1:
            message = f"max_state_size must be at least 1; got {self.max_state_size}"
            raise ValueError(message)

    def get_checkpoint_path(self) -> str | None:
        """Return the directory, or None for the directory of the running job."""
        return self.checkpoint_path

    def get_max_state_size(self) -> int:
        """Return the largest size of a state in bytes, which is not enforced."""
        return self.max_state_size or self.DEFAULT_MAX_STATE_SIZE

    def get_savepoint_path(self) -> str | None:
        """Return the directory of savepoints, if one is set."""
        return self.savepoint_path


@dataclass(frozen=True)
class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints in a directory that the driver and all executors can access.

    A path without a scheme is a local one. ``file_state_size_threshold`` and ``write_buffer_size``
    have no effect: a subtask writes one file per checkpoint.
    """

    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = 1024 * 1024

    checkpoint_path: str
    file_state_size_threshold: int | None = None
    write_buffer_size: int = -1
    savepoint_path: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "checkpoint_path", path_of(self.checkpoint_path))
        _paths(self, "savepoint_path")
        if self.file_state_size_threshold is None:
            object.__setattr__(self, "file_state_size_threshold", -1)
        elif not -1 <= self.file_state_size_threshold <= self.MAX_FILE_STATE_THRESHOLD:
            message = (
                f"file_state_size_threshold must be in [0, {self.MAX_FILE_STATE_THRESHOLD}], "
                f"or be -1 for the default; got {self.file_state_size_threshold}"
            )
            raise ValueError(message)
        if self.write_buffer_size < -1:
            message = (
                "write_buffer_size must not be negative, or be -1 for the default; "
                f"got {self.write_buffer_size}"
            )
            raise ValueError(message)

    def get_checkpoint_path(self) -> str:
        """Return the directory; every job has a subdirectory in it."""
        return self.checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Return the directory of savepoints, if one is set."""
        return self.savepoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return the size in bytes below which Flink would store state in the metadata file."""
        given = self.file_state_size_threshold
        return _DEFAULT_THRESHOLD if given is None or given < 0 else given

    def get_write_buffer_size(self) -> int:
        """Return the size of Flink's write buffer in bytes."""
        return _DEFAULT_BUFFER if self.write_buffer_size < 0 else self.write_buffer_size


def put_storage(configuration: Configuration, storage: CheckpointStorage) -> None:
    """Write a storage into a configuration; a path that the storage lacks is left unchanged."""
    if isinstance(storage, FileSystemCheckpointStorage):
        _STORAGE.put(configuration, _FILE_SYSTEM)
        for setting, given in (
            (_THRESHOLD, storage.file_state_size_threshold),
            (_BUFFER, storage.write_buffer_size),
        ):
            if given is not None and given >= 0:
                setting.put(configuration, given)
    elif isinstance(storage, JobManagerCheckpointStorage):
        _STORAGE.put(configuration, _JOB_MANAGER)
    else:
        message = (
            "a checkpoint storage must be a FileSystemCheckpointStorage, a "
            f"JobManagerCheckpointStorage or a path; got {type(storage).__name__}"
        )
        raise TypeError(message)
    if storage.checkpoint_path is not None:
        DIRECTORY.put(configuration, storage.checkpoint_path)
    if storage.savepoint_path is not None:
        SAVEPOINT_DIRECTORY.put(configuration, storage.savepoint_path)


def storage_of(configuration: Configuration) -> CheckpointStorage | None:
    """Return the storage of a configuration; a directory alone means a file system storage."""
    directory = DIRECTORY.find(configuration)
    savepoints = SAVEPOINT_DIRECTORY.find(configuration)
    name = _STORAGE.find(configuration) or (_FILE_SYSTEM if directory else None)
    if name is None:
        return None
    word = name.strip().lower()
    if word == _JOB_MANAGER:
        return JobManagerCheckpointStorage(directory, savepoint_path=savepoints)
    if word != _FILE_SYSTEM:
        message = (
            f"execution.checkpointing.storage: there is no checkpoint storage {name!r}; "
            "use filesystem or jobmanager"
        )
        raise ConfigurationError(message)
    if directory is None:
        message = (
            "execution.checkpointing.storage is filesystem, which needs a directory; "
            "set execution.checkpointing.dir"
        )
        raise ConfigurationError(message)
    threshold, buffer = _THRESHOLD.find(configuration), _BUFFER.find(configuration)
    return FileSystemCheckpointStorage(
        directory, threshold, -1 if buffer is None else buffer, savepoint_path=savepoints
    )


def path_of(path: object) -> str:
    """Return a path or a URI as text; it must not be empty."""
    address = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(address, str) or not address.strip():
        message = f"a directory must be a path or a URI; got {path!r}"
        raise ValueError(message)
    return address


def _paths(storage: CheckpointStorage, *names: str) -> None:
    for name in names:
        path = getattr(storage, name)
        if path is not None:
            object.__setattr__(storage, name, path_of(path))
