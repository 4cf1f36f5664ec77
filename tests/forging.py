"""Files of a checkpoint or savepoint, changed by somebody who knows their format.

Lengths and checksums are right; what the files say is what the forger wants.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import Struct, pack
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa

_METADATA = Struct("<4sB3sQ")
_STATE = Struct("<4sBBHIQQ")


def forge_metadata(savepoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the metadata of a savepoint says: MessagePack as plain dicts and lists."""
    path = savepoint / "_metadata"
    content = msgspec.msgpack.decode(path.read_bytes()[_METADATA.size : -4])
    change(content)
    path.write_bytes(metadata_of(msgspec.msgpack.encode(content)))


def metadata_of(body: bytes) -> bytes:
    """Return a metadata file with that body."""
    return _sealed(_METADATA.pack(b"HFCP", 1, bytes(3), len(body)) + body)


def forge_state_file(path: Path, change: Callable[[list[Any], bytes], bytes]) -> None:
    """Change the header of a state file in place, and return its new body.

    The header is ``[sections, blobs, …]`` as lists. The metadata gets the new size.
    """
    data = path.read_bytes()
    _, _, compression, _, header_size, _, body_size = _STATE.unpack_from(data)
    end = _STATE.size + header_size
    header = msgspec.msgpack.decode(data[_STATE.size : end])
    body = data[end:-4]
    if compression:
        body = pa.decompress(body, decompressed_size=body_size, codec="lz4", asbytes=True)
    body = change(header, body)
    replace_state_file(path, state_file_of(msgspec.msgpack.encode(header), body))


def replace_state_file(path: Path, data: bytes) -> None:
    """Put other bytes in place of a state file of a savepoint, and their size into the metadata."""
    path.write_bytes(data)

    def change(metadata: dict[str, Any]) -> None:
        for ref in all_refs(metadata):
            if ref[0] == path.name:
                ref[1] = len(data)

    forge_metadata(path.parents[1], change)


def all_refs(metadata: dict[str, Any]) -> list[list[Any]]:
    """Return the references to all state files: name, size, since, until."""
    heads = [head for level in metadata["levels"] for head in level["chains"]]
    return [ref for files, _, tables, *_ in heads for ref in (*files, *tables)]


def state_file_of(
    header: bytes, stored: bytes, compression: int = 0, size: int | None = None
) -> bytes:
    """Return a state file of these parts; ``size`` is that of the body before compression."""
    lengths = len(header), len(stored), len(stored) if size is None else size
    return _sealed(_STATE.pack(b"HFST", 3, compression, 0, *lengths) + header + stored)


def _sealed(data: bytes) -> bytes:
    return data + pack("<I", crc32(data))
