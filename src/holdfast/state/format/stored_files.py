"""Functions that read state files from a storage."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.state.errors import StateCorruptionError
from holdfast.state.format.files import BlobId, StateFile, decode_file
from holdfast.state.format.head import Head
from holdfast.state.storage.directory import ReadableStorage


def read_blobs(storage: ReadableStorage, head: Head) -> dict[BlobId, bytes]:
    """Return all blobs of a head, by operator and name."""
    blobs: dict[BlobId, bytes] = {}
    for ref in head.files:
        merge_blobs(blobs, read_file(storage, ref.name, ref.size).blobs)
    return blobs


def merge_blobs(
    blobs: dict[BlobId, bytes], changes: Mapping[BlobId, bytes | memoryview | None]
) -> None:
    """Bring the blobs of a head to what the next file of it says; None: the blob was removed."""
    for blob_id, data in changes.items():
        if data is None:
            blobs.pop(blob_id, None)
        else:
            blobs[blob_id] = bytes(data)


def read_file(storage: ReadableStorage, name: str, size: int) -> StateFile:
    """Return a state file; raise an error that names it if it does not have that size."""
    data = storage.read(name)
    if len(data) != size:
        message = f"state file {name!r} cannot be used: expected {size} bytes, found {len(data)}"
        raise StateCorruptionError(message)
    return decode_file(data, name)
