"""A file system in memory that knows what would survive the end of its machine."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from holdfast.state.filesystem import FileStatus

__all__ = ["MemoryFileSystem"]

#: what needs space
_GROWING: Final = frozenset({"write", "make directory", "lock"})


class MemoryFileSystem:
    """Files and directories in memory; ``crash`` loses what was not made durable.

    As strict as a file system may be, and as most are only on a bad day: what a file holds is
    durable after ``sync`` of the file, its name after ``sync`` of its directory. A new name, a
    removed one and a changed one survive a crash independently of each other until then. Only
    ``move`` within a directory is one step.

    >>> files = MemoryFileSystem()
    >>> files.make_directories("/job")
    >>> files.write("/job/a", b"one", durable=True)
    >>> files.write("/job/b", b"two")
    >>> files.crash()
    >>> files.files
    {'/job/a': b'one'}

    Attributes:
        full: whether there is no space left; writing raises then.
        watch: called before each step with what is done and to which path. It may raise: an
            ``OSError`` for a step that fails, anything that is no ``Exception`` for a process that
            dies there.
    """

    def __init__(self, watch: Callable[[str, str], None] | None = None) -> None:
        """Begin with an empty root directory."""
        self.full = False
        self.watch = watch
        self._root = _Directory()
        self._locked: set[str] = set()

    @property
    def files(self) -> dict[str, bytes]:
        """What all files hold, by path."""
        return dict(_walk("", self._root))

    def crash(self, chance: Random | None = None) -> None:
        """The machine goes down and comes up again: locks are gone, and what was not durable.

        ``chance`` decides for every change that was not durable whether it survived, and how much
        of a file did; without it none of that does.
        """
        self._root.crash(chance)
        self._locked.clear()

    # What `FileSystem` asks for

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        node = self._find(path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node.data

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file in one step, and make it and its name durable in another."""
        parent, name = self._parent(path)
        if isinstance(parent.now.get(name), _Directory):
            raise _error(errno.EISDIR, path)
        try:
            self._happens("write", path)
        except OSError:
            raise
        except BaseException:  # the process dies
            parent.change({f".{name}.tmp": _File(bytes(data[: len(data) // 2]), False)})
            raise
        parent.change({name: _File(bytes(data), durable)})
        if durable:
            try:
                self._happens("sync", path)
            except OSError:
                parent.change({name: None})
                raise
            parent.sync()

    def sync(self, path: str) -> None:
        """Make the contents of a file durable, or the names in a directory."""
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        self._happens("sync", path)
        node.sync()

    def move(self, source: str, target: str) -> None:
        """Give a file or a directory another name in its directory."""
        parent, old = self._parent(source)
        other, new = self._parent(target)
        if parent is not other:
            raise _error(errno.EXDEV, target)
        if old not in parent.now:
            raise _error(errno.ENOENT, source)
        _check_room(parent.now[old], parent.now.get(new), target)
        self._happens("move", target)
        parent.change({old: None, new: parent.now[old]})

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        node = self._find(path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        if node is not None:
            self._happens("delete", path)
            parent, name = self._parent(path)
            parent.change({name: None})

    def delete_tree(self, path: str) -> None:
        """Delete a directory from the leaves up, one step each, if it is there."""
        node = self._find(path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        if node is not None:
            for name, child in sorted(node.now.items()):
                delete = self.delete if isinstance(child, _File) else self.delete_tree
                delete(f"{path}/{name}")
            self._happens("delete", path)
            parent, name = self._parent(path)
            parent.change({name: None})

    def status(self, path: str) -> FileStatus | None:
        """Return what is known of a file or directory."""
        try:
            node = self._find(path)
        except NotADirectoryError:
            return None
        return None if node is None else _status(os.path.basename(path), node)

    def list_directory(self, path: str) -> list[FileStatus]:
        """Return what is in a directory; nothing if it is not there."""
        node = self._find(path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        return [] if node is None else [_status(name, node.now[name]) for name in sorted(node.now)]

    def make_directories(self, path: str) -> None:
        """Make a directory, and the ones above it, durably."""
        node = self._find(path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        if node is None:
            above = os.path.dirname(path)
            self.make_directories(above)
            self._happens("make directory", path)
            parent, name = self._parent(path)
            parent.change({name: _Directory()})
            self._happens("sync", above)
            parent.sync()

    def lock(self, path: str, contents: bytes) -> Callable[[], None]:
        """Lock a file until it is let go of, or until the machine crashes."""
        if path in self._locked:
            raise _error(errno.EAGAIN, path)
        parent, name = self._parent(path)
        self._happens("lock", path)
        parent.change({name: _File(bytes(contents), False)})
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    def _happens(self, what: str, path: str) -> None:
        """A step is about to be done."""
        if self.watch is not None:
            self.watch(what, path)
        if self.full and what in _GROWING:
            raise _error(errno.ENOSPC, path)

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, name = os.path.split(path)
        parent = self._find(above)
        if not isinstance(parent, _Directory):
            raise _error(errno.ENOENT if parent is None else errno.ENOTDIR, path)
        return parent, name

    def _find(self, path: str) -> _File | _Directory | None:
        node: _File | _Directory | None = self._root
        for name in filter(None, path.split("/")):
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR, path)
            node = None if node is None else node.now.get(name)
        return node


class _File:
    """What was written in one step, and whether it is durable."""

    __slots__ = ("data", "durable", "modified")

    def __init__(self, data: bytes, durable: bool) -> None:
        self.data = data
        self.durable = durable
        self.modified = time.time_ns() // 1_000_000

    def sync(self) -> None:
        self.durable = True

    def crash(self, chance: Random | None) -> None:
        if not self.durable:
            whole = chance is not None and chance.random() < 0.5
            size = chance.randrange(len(self.data) + 1) if chance is not None else 0
            self.data = self.data if whole else self.data[:size]
        self.durable = True


class _Directory:
    """The names in a directory as they are, as they are durable, and how to get there.

    Invariant: the changes, applied in their order to what is durable, give what is now.
    """

    __slots__ = ("changes", "durable", "now")

    def __init__(self) -> None:
        self.now: dict[str, _File | _Directory] = {}
        self.durable: dict[str, _File | _Directory] = {}
        #: each sets some names, or removes them, in one step
        self.changes: list[dict[str, _File | _Directory | None]] = []

    def change(self, names: dict[str, _File | _Directory | None]) -> None:
        _apply(self.now, names)
        self.changes.append(names)

    def sync(self) -> None:
        self.durable = dict(self.now)
        self.changes.clear()

    def crash(self, chance: Random | None) -> None:
        for names in self.changes:
            if chance is not None and chance.random() < 0.5:
                _apply(self.durable, names)
        self.changes.clear()
        self.now = dict(self.durable)
        for name in sorted(self.now):
            self.now[name].crash(chance)


def _check_room(node: _File | _Directory, there: _File | _Directory | None, path: str) -> None:
    """Refuse what a rename refuses: only like goes over like, and no directory that has files."""
    if there is None or (isinstance(node, _File) and isinstance(there, _File)):
        return
    if isinstance(there, _File):
        raise _error(errno.ENOTDIR, path)
    if isinstance(node, _File):
        raise _error(errno.EISDIR, path)
    if there.now:
        raise _error(errno.ENOTEMPTY, path)


def _apply(
    entries: dict[str, _File | _Directory], names: dict[str, _File | _Directory | None]
) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _walk(path: str, directory: _Directory) -> Iterator[tuple[str, bytes]]:
    for name, node in sorted(directory.now.items()):
        if isinstance(node, _Directory):
            yield from _walk(f"{path}/{name}", node)
        else:
            yield f"{path}/{name}", node.data


def _status(name: str, node: _File | _Directory) -> FileStatus:
    if isinstance(node, _Directory):
        return FileStatus(name, 0, 0, is_directory=True)
    return FileStatus(name, len(node.data), node.modified)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
