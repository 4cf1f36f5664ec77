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

from collections.abc import Collection, Iterable, Sequence
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


def gone(system: FileSystem, directory: str, names: Collection[str]) -> list[str]:
    """Return those segments that are not in their directory any more."""
    there = {status.name for status in system.list_directory(directory)} if names else ()
    return [name for name in names if name not in there]


def check_all_gone(
    system: FileSystem, directory: str, names: Collection[str], gone: Sequence[str]
) -> None:
    """Refuse segments of which another job has published some, but not all.

    Raises:
        MissingFileError: when some of them are gone.
    """
    left = [name for name in names if name not in gone]
    if gone and left:
        raise MissingFileError(
            f"records that waited in '{system.uri(join(directory, gone[0]))}' were published by "
            "another job, which has started from a checkpoint of this one, and those in "
            f"'{left[0]}' were not; start this job from an earlier checkpoint, and other jobs from "
            "its savepoints"
        )
