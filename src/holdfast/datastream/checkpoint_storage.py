"""Where checkpoints are kept: settings only, entries of a configuration in the end.

Holdfast writes every checkpoint as files. Without a directory they lie in the directory of the
running job and go with it: they serve its restarts, not a new start of the program.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final

from holdfast.common import ConfigOptions, Configuration
from holdfast.common._settings import Setting

__all__ = ["CheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]

_JOB_MANAGER: Final = "jobmanager"
_FILE_SYSTEM: Final = "filesystem"

_DEFAULT_THRESHOLD: Final = 20 * 1024
_DEFAULT_BUFFER: Final = 4 * 1024

DIRECTORY: Final = Setting(
    ConfigOptions.key("execution.checkpointing.dir").string_type().no_default_value(),
    older=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
SAVEPOINT_DIRECTORY: Final = Setting(
    ConfigOptions.key("execution.checkpointing.savepoint-dir").string_type().no_default_value(),
    older=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
_STORAGE: Final = Setting(
    ConfigOptions.key("execution.checkpointing.storage").string_type().no_default_value(),
    older=("state.checkpoint-storage",),
)
_THRESHOLD: Final = Setting(
    ConfigOptions.key("execution.checkpointing.data-inline-threshold")
    .memory_type()
    .default_value(_DEFAULT_THRESHOLD),
    older=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
    least=0,
)
_BUFFER: Final = Setting(
    ConfigOptions.key("execution.checkpointing.write-buffer-size")
    .int_type()
    .default_value(_DEFAULT_BUFFER),
    older=("state.storage.fs.write-buffer-size", "state.backend.fs.write-buffer-size"),
    least=0,
)


class CheckpointStorage:
    """Where checkpoints are kept."""


@dataclass(frozen=True)
class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints that end with the job, for tests and first steps.

    In Flink they are in the memory of the job manager; here they are files in the directory of
    the running job, or in ``checkpoint_path``, so that no state is too large and
    ``max_state_size`` has no effect.
    """

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 * 1024 * 1024

    checkpoint_path: str | None = None
    max_state_size: int | None = None
    savepoint_path: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check what is given."""
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
    """Checkpoints in a directory that the driver and all executors see.

    A path without a scheme is a local one. ``file_state_size_threshold`` and
    ``write_buffer_size`` are noted and have no effect: a subtask writes one file per checkpoint.
    """

    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = 1024 * 1024

    checkpoint_path: str
    file_state_size_threshold: int | None = None
    write_buffer_size: int = -1
    savepoint_path: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check what is given."""
        object.__setattr__(self, "checkpoint_path", path_of(self.checkpoint_path))
        _paths(self, "savepoint_path")
        if self.file_state_size_threshold is None:
            object.__setattr__(self, "file_state_size_threshold", -1)
        elif not -1 <= self.file_state_size_threshold <= self.MAX_FILE_STATE_THRESHOLD:
            message = (
                f"file_state_size_threshold must lie in [0, {self.MAX_FILE_STATE_THRESHOLD}], "
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
        """Return the directory, in which every job has one of its own."""
        return self.checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """Return the directory of savepoints, if one is set."""
        return self.savepoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return below what size Flink would keep state in the metadata file, in bytes."""
        given = self.file_state_size_threshold
        return _DEFAULT_THRESHOLD if given is None or given < 0 else given

    def get_write_buffer_size(self) -> int:
        """Return the size of Flink's write buffer in bytes."""
        return _DEFAULT_BUFFER if self.write_buffer_size < 0 else self.write_buffer_size


def put_storage(configuration: Configuration, storage: CheckpointStorage) -> None:
    """Write a storage into a configuration; a path that it has not stays as it is."""
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
    """Return the storage that a configuration names; a directory alone is one on a file system."""
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
        raise ValueError(message)
    if directory is None:
        message = (
            "execution.checkpointing.storage is filesystem, which needs a directory; "
            "set execution.checkpointing.dir"
        )
        raise ValueError(message)
    threshold, buffer = _THRESHOLD.find(configuration), _BUFFER.find(configuration)
    return FileSystemCheckpointStorage(
        directory, threshold, -1 if buffer is None else buffer, savepoint_path=savepoints
    )


def path_of(path: object) -> str:
    """Return a path or a URI as text; it must not be empty."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip():
        message = f"a directory must be a path or a URI; got {path!r}"
        raise ValueError(message)
    return text


def _paths(storage: CheckpointStorage, *names: str) -> None:
    for name in names:
        path = getattr(storage, name)
        if path is not None:
            object.__setattr__(storage, name, path_of(path))
