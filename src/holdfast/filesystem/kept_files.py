"""Notes about files that must be kept when a directory is cleaned up.

    <directory>/.kept-<random>    the names of files in the directory, one per line

A sink writes a note for a savepoint: attempts that do not know of the savepoint clean up what they
do not know. A note is deleted when none of its files is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Final

from holdfast.filesystem.base import FileSystem, FileSystemError, join

_PREFIX: Final = ".kept-"


def keep_files(system: FileSystem, directory: str, names: Iterable[str]) -> None:
    """Note that files of a directory stay; durable. The files must be there."""
    if not (names := list(names)):
        return  # there may be no directory
    note = join(directory, f"{_PREFIX}{uuid.uuid4().hex}")
    system.write(note, "\n".join(names).encode(), durable=True)


def is_note(name: str) -> bool:
    """Return whether it is the name of a note."""
    return name.startswith(_PREFIX)


def kept_files(system: FileSystem, directory: str, listed: Collection[str]) -> frozenset[str]:
    """Return the names that notes have; delete notes without any file left.

    Args:
        system: where the directory is.
        directory: the directory.
        listed: the names of all that was in it a moment ago.
    """
    notes = {name: _names(system, join(directory, name)) for name in listed if is_note(name)}
    if not notes:
        return frozenset()
    # NB: a file is there before its note is, so it is in a list that is taken after the note
    there = {status.name for status in system.list_directory(directory)}
    for name, files in notes.items():
        if there.isdisjoint(files):
            system.delete(join(directory, name))
    return frozenset(name for files in notes.values() for name in files)


def _names(system: FileSystem, note: str) -> list[str]:
    """Return the names in a note; none if it was just deleted."""
    try:
        return system.read(note).decode(errors="replace").split("\n")
    except FileSystemError:
        if system.exists(note):
            raise
        return []
