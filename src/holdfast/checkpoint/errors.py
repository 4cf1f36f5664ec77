"""Errors about checkpoints.

CheckpointError
├── CheckpointCorruptionError   a file is damaged, cut short, foreign, or of another format
├── CheckpointStorageError      a file cannot be read or written: missing, no space, no permission
│   └── CheckpointReplacedError  the job has deleted it, since there is a newer one
└── DirectoryInUseError         another live job uses the directory
"""

from __future__ import annotations

from holdfast.errors import HoldfastError

__all__ = [
    "CheckpointCorruptionError",
    "CheckpointError",
    "CheckpointReplacedError",
    "CheckpointStorageError",
    "DirectoryInUseError",
]


class CheckpointError(HoldfastError):
    """Base of all errors about checkpoints and savepoints."""


class CheckpointCorruptionError(CheckpointError):
    """A checkpoint does not contain what was written; it must not be used."""


class CheckpointStorageError(CheckpointError, OSError):
    """A checkpoint's file cannot be read or written; the cause is the system's own error."""


class CheckpointReplacedError(CheckpointStorageError):
    """A running job has deleted a checkpoint, because newer ones are complete."""


class DirectoryInUseError(CheckpointError):
    """Another job writes checkpoints to the directory; only one may at a time."""
