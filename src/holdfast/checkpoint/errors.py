"""What can go wrong with a checkpoint.

CheckpointError
├── CheckpointCorruptionError   a file is damaged, cut short, foreign, or of another format
├── CheckpointStorageError      a file cannot be read or written: missing, no space, no permission
└── DirectoryInUseError         another live job works in the directory
"""

from __future__ import annotations

from holdfast.errors import HoldfastError

__all__ = [
    "CheckpointCorruptionError",
    "CheckpointError",
    "CheckpointStorageError",
    "DirectoryInUseError",
]


class CheckpointError(HoldfastError):
    """Base of all errors about checkpoints and savepoints."""


class CheckpointCorruptionError(CheckpointError):
    """A checkpoint does not hold what was written; it must not be used."""


class CheckpointStorageError(CheckpointError, OSError):
    """A checkpoint's file cannot be read or written; the cause is the system's own error."""


class DirectoryInUseError(CheckpointError):
    """Two jobs may not write checkpoints to one directory."""
