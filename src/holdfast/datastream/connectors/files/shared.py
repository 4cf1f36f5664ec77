"""Part files that several jobs may publish: the records that wait in one savepoint.

With compaction (`holdfast.datastream.connectors.files.compacting`), a savepoint or a checkpoint
names segments that wait. Every job that starts from it publishes them, and so does the job that
took the savepoint. They agree on the part files: which segments each has, and its name, are in the
savepoint, and whoever comes second finds the part file, or that its segments are gone.

Invariant: the segments of a part are deleted when the part is published, the last one first.
Consequence: if the last one is gone, all of them are published. If only earlier ones are gone, a
job has published those, which has started from an older checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b

from holdfast.filesystem import FileSystem, MissingFileError, join


def name_of(segments: Iterable[str], prefix: str, suffix: str) -> str:
    """Return the name of the part file of some segments: the same in every job."""
    digest = blake2b("\n".join(segments).encode(), digest_size=8).hexdigest()
    return f"{prefix}-{digest}{suffix}"


def unpublished(system: FileSystem, paths: Sequence[str], final: str) -> list[str]:
    """Return the segments of a part that no job has published.

    If the part file is there, the segments that are left over are deleted.
    """
    # NB: before the part file is looked for: another job may be publishing it
    there = [path for path in paths if system.exists(path)]
    if system.exists(final):
        for path in reversed(there):
            system.delete(path)
        return []
    return there if paths[-1] in there else []


class Waited:
    """Segments that are deleted when the part files with their records are there.

    If they are gone before that, another job has published their records, under other names.
    """

    def __init__(self, system: FileSystem, directory: str, names: Sequence[str]) -> None:
        """Look when it is asked for."""
        self._system = system
        self._directory = directory
        self._names = names

    @cached_property
    def gone(self) -> list[str]:
        """Return the names of those that are gone."""
        if not self._names:
            return []
        there = {status.name for status in self._system.list_directory(self._directory)}
        return [name for name in self._names if name not in there]

    def check_all_gone(self) -> None:
        """Check that all are gone, or none.

        Raises:
            MissingFileError: when another job has published some of them only.
        """
        left = [name for name in self._names if name not in self.gone]
        if self.gone and left:
            gone = self._system.uri(join(self._directory, self.gone[0]))
            raise MissingFileError(
                f"records that waited in '{gone}' were published by another job, which has started "
                f"from a checkpoint of this one, and those in '{left[0]}' were not; start this job "
                "from an earlier checkpoint, and other jobs from its savepoints"
            )
