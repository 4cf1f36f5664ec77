"""The log that Spark keeps of a query: a checkpoint takes its entries, an attempt starts with them.

A query with a streaming DataFrame must read on exactly after the checkpoint's batch. Its log tells
Spark where that is: the query's id, the offsets of the last two batches, the commit of the last
one, and what the sources keep themselves (the file source: which files it has seen). A query that
reads only ticks needs nothing of it.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.checkpoint.errors import CheckpointCorruptionError

_BATCH = "batch"
#: a number of 64 bits has no more
_DIGITS = 19
_NO_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class OffsetLog:
    """The log of one attempt's query, in its own directory."""

    def __init__(self, directory: Path, needed: bool) -> None:
        """``needed``: the query reads more than ticks."""
        self.directory = directory
        self._needed = needed
        self.batch = -1

    def entries(self) -> dict[str, bytes]:
        """What a checkpoint after the current batch keeps."""
        if not self._needed:
            return {}
        names = ["metadata", f"offsets/{self.batch}", f"offsets/{self.batch - 1}"]
        names += [f"commits/{self.batch - 1}"]
        sources = self.directory / "sources"
        files = [path for path in sources.rglob("*") if path.is_file() and path.name[0] != "."]
        names += [str(path.relative_to(self.directory)) for path in files]
        kept = {
            name: path.read_bytes() for name in names if (path := self.directory / name).exists()
        }
        return {**kept, _BATCH: str(self.batch).encode()}

    def start_from(self, entries: dict[str, bytes]) -> int:
        """Begin with a checkpoint's entries; returns the number of the first batch.

        Their names are plain paths: `CheckpointMetadata` has no others.

        Raises:
            CheckpointCorruptionError: when the entries are not those of a log.
        """
        if not self._needed or _BATCH not in entries:
            return 0
        batch = _number(entries[_BATCH])
        for name, data in entries.items():
            if name != _BATCH:
                self._write(name, data)
        self._write(f"commits/{batch}", entries.get(f"commits/{batch - 1}", _NO_COMMIT))
        return batch + 1

    def _write(self, name: str, data: bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _number(batch: bytes) -> int:
    if not batch.isdigit() or len(batch) > _DIGITS:
        message = (
            "the checkpoint cannot be used: expected the number of a batch in its entry "
            f"{_BATCH!r}, found {batch[: 2 * _DIGITS]!r}; start from another checkpoint"
        )
        raise CheckpointCorruptionError(message)
    return int(batch)
