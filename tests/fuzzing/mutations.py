"""Ways to damage or forge the files of a savepoint or checkpoint.

With a wrong checksum, nothing but the bytes changes. With the right one, the forger knows the
format: what is inside is taken apart, changed, and put together again, and the metadata has the new
sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from tests.forging import _METADATA, _STATE, all_refs, metadata_of, state_file_of
from tests.fuzzing.canary import Canary
from tests.fuzzing.subjects import Subject

_BLOCK = 64
#: what a field may be replaced by
_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2, 7, 255, 1 << 31, 1 << 40, -(1 << 40), (1 << 63) - 1, 1.5),
    *("", "x", ".", "..", "../x", "a/b", "\0", "x" * 300, "\0tables", "everything", "map"),
    *("list", "value", b"", b"xyz", [], {}, [[]], [[[[]]]]),
]


@dataclass(frozen=True)
class Mutation:
    """What was done.

    Attributes:
        file: the kind of file.
        how: the kind of change.
        forged: whether its checksum is right: then other values, validly encoded, are nothing that
            anybody could notice.
    """

    file: str
    how: str
    forged: bool

    @property
    def replaces_metadata(self) -> bool:
        """Whether the metadata is now that of another savepoint, as that was written."""
        return self.file == "metadata" and self.how.startswith("of another")


def mutate(random: Random, subject: Subject, root: Path, canary: Canary) -> Mutation:
    """Change one file below a directory that is a copy of the subject's."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    path = random.choice(files)
    kind = _kind(path)
    ways = {**_DAMAGES, **_SWAPS}
    if kind in ("metadata", "state", "table"):
        ways |= _FORGERIES if kind == "metadata" else _FORGERIES | _STATE_FORGERIES
    how = random.choice(sorted(ways))
    ways[how](_Forger(random, subject, root, path, canary))
    return Mutation(kind, how, how in _FORGERIES or how in _STATE_FORGERIES)


def _kind(path: Path) -> str:
    if path.name == "_metadata":
        return "metadata"
    return {".state": "state", ".table": "table"}.get(path.suffix, "other")


class _Forger:
    """Changes one file."""

    def __init__(
        self, random: Random, subject: Subject, root: Path, path: Path, canary: Canary
    ) -> None:
        self.random = random
        self.subject = subject
        self.root = root
        self.path = path
        self.canary = canary
        self.data = path.read_bytes()

    # Damages: the checksum stays what it was

    def flip(self) -> None:
        data = bytearray(self.data)
        for _ in range(self.random.choice((1, 1, 4))):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        self.path.write_bytes(data)

    def truncate(self) -> None:
        self.path.write_bytes(self.data[: self.random.randrange(len(self.data))])

    def extend(self) -> None:
        more = self.random.randbytes(self.random.choice((1, 4, 1000)))
        self.path.write_bytes(self.data + more)

    def copy_block(self) -> None:
        data, size = bytearray(self.data), min(_BLOCK, len(self.data))
        source, target = (self.random.randrange(len(data) - size + 1) for _ in range(2))
        data[target : target + size] = data[source : source + size]
        self.path.write_bytes(data)

    # Swaps: whole files, as they were written, in places of others

    def swap(self) -> None:
        others = [p for p in self.root.rglob("*") if p.is_file() and p.suffix == self.path.suffix]
        other = self.random.choice(sorted(others))
        self.path.write_bytes(other.read_bytes())
        other.write_bytes(self.data)

    def stranger(self) -> None:
        same = [p for p in self.subject.strangers if p.suffix == self.path.suffix]
        if same:
            self.path.write_bytes(self.random.choice(same).read_bytes())

    def fitted_stranger(self) -> None:
        """A file of another checkpoint or job, whose size the references say."""
        self.stranger()
        self._fit(len(self.path.read_bytes()))

    def remove(self) -> None:
        self.path.unlink()

    # Forgeries: the checksum is right

    def bytes_inside(self) -> None:
        if self._is_metadata:
            self._write(metadata_of(self._mutated(self._body())))
        else:
            header, body, compression, size = self._parts()
            self._write(state_file_of(self._mutated(header), body, compression, size))

    def fields(self) -> None:
        if self._is_metadata:
            content = self._changed(msgspec.msgpack.decode(self._body()))
            self._write(metadata_of(msgspec.msgpack.encode(content)))
        else:
            header, body = self._plain_parts()
            content = self._changed(msgspec.msgpack.decode(header))
            self._write(state_file_of(msgspec.msgpack.encode(content), body))

    def nesting(self) -> None:
        deep = b"\x91" * self.random.choice((100, 10_000, 1_000_000)) + b"\xc0"
        if self._is_metadata:
            self._write(metadata_of(deep))
        else:
            self._write(state_file_of(deep, self._parts()[1]))

    def stored_bytes(self) -> None:
        header, body, compression, size = self._parts()
        self._write(state_file_of(header, self._mutated(body), compression, size))

    def column_bytes(self) -> None:
        header, body = self._plain_parts()
        data = bytearray(body)
        for _ in range(self.random.choice((1, 1, 2, 8)) if data else 0):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        self._write(state_file_of(header, bytes(data)))

    def sizes(self) -> None:
        header, body, compression, size = self._parts()
        wrong = self.random.choice((0, 1, size - 1, size + 1, 1 << 31, 1 << 40, (1 << 64) - 1))
        self._write(state_file_of(header, body, compression, max(wrong, 0)))

    def bomb(self) -> None:
        """A few bytes that say that they are a gigabyte."""
        header, _ = self._plain_parts()
        codec, number = self.random.choice((("lz4", 1), ("zstd", 2)))
        size = 1 << 28
        packed = pa.compress(bytes(size), codec=codec, asbytes=True)
        self._write(state_file_of(header, packed[: 1 << 20], number, size))

    def pickles(self) -> None:
        """In place of each column and blob: a pickle that would run code."""
        header, body = self._plain_parts()
        content, parts, at = msgspec.msgpack.decode(header), [], 0
        for head, place in _lengths(content):
            part = body[at : at + head[place]]
            at += head[place]
            if self.random.random() < 0.3:
                part = self.canary.payload(self.random)
                if place == 1 and len(head) == 2:
                    head[0] = 2 if isinstance(head[0], int) else head[0]
            head[place] = len(part)
            parts.append(part)
        self._write(state_file_of(msgspec.msgpack.encode(content), b"".join(parts)))

    @property
    def _is_metadata(self) -> bool:
        return self.path.name == "_metadata"

    def _body(self) -> bytes:
        return self.data[_METADATA.size : -4]

    def _parts(self) -> tuple[bytes, bytes, int, int]:
        _, _, compression, _, header, _, size = _STATE.unpack_from(self.data)
        end = _STATE.size + header
        return self.data[_STATE.size : end], self.data[end:-4], compression, size

    def _plain_parts(self) -> tuple[bytes, bytes]:
        header, body, compression, size = self._parts()
        if compression:
            body = pa.decompress(body, decompressed_size=size, codec="lz4", asbytes=True)
        return header, body

    def _mutated(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            if not changed:
                break
            at, size = self.random.randrange(len(changed)), self.random.choice((1, 2, 8))
            match self.random.randrange(4):
                case 0:
                    changed[at] = self.random.randrange(256)
                case 1:
                    del changed[at : at + size]
                case 2:
                    changed[at:at] = self.random.randbytes(size)
                case _:
                    changed[at : at + 4] = self.random.choice((b"\xff" * 4, b"\xdd\xff\xff\xff"))
        return bytes(changed)

    def _changed(self, content: Any) -> Any:
        """Change a field or two of what MessagePack said."""
        box = [content]
        for _ in range(self.random.choice((1, 1, 2))):
            container, key = self.random.choice(_places(box))
            container[key] = self._other(container[key])
        return box[0]

    def _other(self, value: Any) -> Any:
        if isinstance(value, int) and self.random.random() < 0.5:
            return value + self.random.choice((-1, 1, 1000, -1000))
        if isinstance(value, list) and value and self.random.random() < 0.5:
            value = list(value)
            self.random.shuffle(value)
            return value[1:] if self.random.random() < 0.5 else [*value, value[0]]
        return self.random.choice(_VALUES)

    def _write(self, data: bytes) -> None:
        self.path.write_bytes(data)
        self._fit(len(data))

    def _fit(self, size: int) -> None:
        """Let the metadata say the size of what is there now."""
        if self._is_metadata:
            return
        for path in self.root.rglob("_metadata"):
            content = msgspec.msgpack.decode(path.read_bytes()[_METADATA.size : -4])
            for ref in all_refs(content):
                if ref[0] == self.path.name:
                    ref[1] = size
            path.write_bytes(metadata_of(msgspec.msgpack.encode(content)))


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every place in nested lists and dicts: the container and the key."""
    found: list[tuple[Any, Any]] = []
    keys = range(len(content)) if isinstance(content, list) else list(content)
    for key in keys:
        found.append((content, key))
        if isinstance(content[key], list | dict):
            found += _places(content[key])
    return found


def _lengths(header: list[Any]) -> list[tuple[list[Any], int]]:
    """The heads of columns and blobs in the order of the body, each with where its length is."""
    columns = [(column, 1) for section in header[0] for chunk in section[6] for column in chunk[5]]
    return [*columns, *((blob, 2) for blob in header[1] if blob[2] is not None)]


_Way = Callable[[_Forger], None]
_DAMAGES: dict[str, _Way] = {
    "bits flipped": _Forger.flip,
    "cut short": _Forger.truncate,
    "extended": _Forger.extend,
    "block copied": _Forger.copy_block,
}
_SWAPS: dict[str, _Way] = {
    "swapped": _Forger.swap,
    "of another": _Forger.stranger,
    "of another, size fitted": _Forger.fitted_stranger,
    "removed": _Forger.remove,
}
_FORGERIES: dict[str, _Way] = {
    "forged bytes": _Forger.bytes_inside,
    "forged fields": _Forger.fields,
    "forged nesting": _Forger.nesting,
}
_STATE_FORGERIES: dict[str, _Way] = {
    "forged stored bytes": _Forger.stored_bytes,
    "forged columns": _Forger.column_bytes,
    "forged sizes": _Forger.sizes,
    "forged bomb": _Forger.bomb,
    "forged pickles": _Forger.pickles,
}
