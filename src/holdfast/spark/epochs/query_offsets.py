"""The log that Spark writes for a query: checkpoints contain its entries, attempts start with them.

A query with a streaming DataFrame must continue exactly after the checkpoint's batch. Its log tells
Spark the position: the query's id, the offsets of the last two batches, the commit of the last one,
and the sources' own data (for the file source: the files it has seen). A query that reads only
ticks does not need it.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.checkpoint.errors import CheckpointCorruptionError

_BATCH = "batch"
#: the most digits of a 64-bit number
_DIGITS = 19
_NO_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class OffsetLog:
    """The log of one attempt's query, in its own directory."""

    def __init__(self, directory: Path, needed: bool) -> None:
        """Use a directory for the log; ``needed`` means that the query reads more than ticks."""
        self.directory = directory
        self._needed = needed
        self.batch = -1

    def entries(self) -> dict[str, bytes]:
        """Return the entries for a checkpoint after the current batch."""
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
        """Start with a checkpoint's entries; return the number of the first batch.

        Their names are plain paths: `CheckpointMetadata` allows no others.

        Raises:
            CheckpointCorruptionError: if the entries are not those of a log.
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
