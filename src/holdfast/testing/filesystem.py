"""A file system in memory that simulates crashes of its machine."""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import BinaryIO, Final

from holdfast.filesystem import FileLock, FileStatus, FileSystem, LockedError

#: what needs space
_GROWING: Final = frozenset({"write", "make directory", "lock"})


class MemoryFileSystem(FileSystem):
    """Files and directories in memory; ``crash`` loses what was not made durable.

    It is as strict as a file system may be: the contents of a file are
    durable after ``sync`` of the file, its name after ``sync`` of its directory. A new name, a
    removed one and a changed one survive a crash independently of each other until then. Only
    ``move`` within a directory is one step. All addresses lead here.

    >>> files = MemoryFileSystem()
    >>> files.make_directories("/job")
    >>> files.write("/job/a", b"one", durable=True)
    >>> files.write("/job/b", b"two")
    >>> files.crash()
    >>> files.files
    {'/job/a': b'one'}

    Attributes:
        is_remote: whether a job treats it as one of another machine, with a stage before it.
        full: whether there is no space left; writing raises then.
        watch: called before each step with what is done and to which path. It may raise: an
            ``OSError`` for a step that fails, anything that is no ``Exception`` for a process that
            dies there.
    """

    def __init__(
        self, watch: Callable[[str, str], None] | None = None, is_remote: bool = False
    ) -> None:
        """Start with an empty root directory."""
        self.is_remote = is_remote
        self.full = False
        self.watch = watch
        self._root = _Directory()
        self._locked: dict[str, _PathLock] = {}

    @property
    def files(self) -> dict[str, bytes]:
        """Return what all files hold, by path."""
        return dict(_walk("", self._root))

    def crash(self, chance: Random | None = None) -> None:
        """Simulate a crash of the machine: locks and changes that were not durable are lost.

        ``chance`` decides for every change that was not durable whether it survives, and how much
        of a file does; without it none survives.
        """
        self._root.crash(chance)
        self._locked.clear()

    # What `FileSystem` asks for

    def uri(self, path: str) -> str:
        """Return the path itself."""
        return path

    def locate(self, uri: str) -> tuple[FileSystem, str]:
        """Return the path of the same name, here."""
        return self, uri

    def open_output(self, path: str) -> BinaryIO:
        """Return a stream whose contents are written when it is closed."""
        return _MemoryOutput(self, path)

    def open_input(self, path: str) -> BinaryIO:
        """Return a stream over the contents as they are now."""
        return io.BytesIO(self.read(path))

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        with self.errors("read", path):
            node = self._find(path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR)
            if node is None:
                raise _error(errno.ENOENT)
            return node.data

    def write(self, path: str, data: bytes, durable: bool = False) -> None:
        """Write a file in one step, and make it and its name durable in another."""
        with self.errors("write", path):
            parent, name = self._parent(path)
            if isinstance(parent.now.get(name), _Directory):
                raise _error(errno.EISDIR)
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
        with self.errors("sync", path):
            node = self._find(path)
            if node is None:
                raise _error(errno.ENOENT)
            self._happens("sync", path)
            node.sync()

    def move(self, source: str, target: str) -> None:
        """Rename a file or a directory; one step within a directory."""
        with self.errors("move", source, target):
            parent, old = self._parent(source)
            if old not in parent.now:
                raise _error(errno.ENOENT)
            self.make_directories(os.path.dirname(target))
            other, new = self._parent(target)
            _check_room(parent.now[old], other.now.get(new))
            self._happens("move", target)
            node = parent.now[old]
            if parent is other:
                parent.change({old: None, new: node})
            else:
                other.change({new: node})
                parent.change({old: None})

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        with self.errors("delete", path):
            node = self._find(path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR)
            if node is not None:
                self._happens("delete", path)
                parent, name = self._parent(path)
                parent.change({name: None})

    def delete_tree(self, path: str) -> None:
        """Delete a directory from the leaves up, one step each, if it is there."""
        with self.errors("delete", path):
            node = self._find(path)
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR)
            if node is not None:
                for name, child in sorted(node.now.items()):
                    delete = self.delete if isinstance(child, _File) else self.delete_tree
                    delete(f"{path}/{name}")
                self._remove(path)

    def delete_if_empty(self, path: str) -> None:
        """Delete a directory that has nothing in it."""
        with self.errors("delete", path):
            node = self._find(path)
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR)
            if node is not None and not node.now:
                self._remove(path)

    def status(self, path: str) -> FileStatus | None:
        """Return what is known of a file or directory."""
        try:
            node = self._find(path)
        except NotADirectoryError:
            return None
        return None if node is None else _status(os.path.basename(path), node)

    def list_directory(self, path: str) -> list[FileStatus]:
        """Return what is in a directory; nothing if it is not there."""
        with self.errors("list", path):
            node = self._find(path)
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR)
            found = {} if node is None else node.now
            return [_status(name, found[name]) for name in sorted(found)]

    def make_directories(self, path: str) -> None:
        """Make a directory, and the ones above it, durably."""
        with self.errors("make directory", path):
            node = self._find(path)
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR)
            if node is None:
                above = os.path.dirname(path)
                self.make_directories(above)
                self._happens("make directory", path)
                parent, name = self._parent(path)
                parent.change({name: _Directory()})
                self._happens("sync", above)
                parent.sync()

    def lock(self, path: str, contents: bytes) -> FileLock:
        """Lock a file until it is released, or until the machine crashes."""
        with self.errors("lock", path):
            if path in self._locked:
                raise LockedError(f"'{path}' is locked", self.read(path))
            parent, name = self._parent(path)
            self._happens("lock", path)
            parent.change({name: _File(bytes(contents), False)})
        self._locked[path] = lock = _PathLock(self._locked, path)
        return lock

    def _remove(self, path: str) -> None:
        self._happens("delete", path)
        parent, name = self._parent(path)
        parent.change({name: None})

    def _happens(self, what: str, path: str) -> None:
        """Announce a step that is about to be done."""
        if self.watch is not None:
            self.watch(what, path)
        if self.full and what in _GROWING:
            raise _error(errno.ENOSPC)

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, name = os.path.split(path)
        parent = self._find(above)
        if not isinstance(parent, _Directory):
            raise _error(errno.ENOENT if parent is None else errno.ENOTDIR)
        return parent, name

    def _find(self, path: str) -> _File | _Directory | None:
        node: _File | _Directory | None = self._root
        for name in filter(None, path.split("/")):
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR)
            node = None if node is None else node.now.get(name)
        return node


class _PathLock:
    """A locked path."""

    def __init__(self, locked: dict[str, _PathLock], path: str) -> None:
        self._locked = locked
        self._path = path

    @property
    def is_lost(self) -> bool:
        return False

    def is_held(self) -> bool:
        return self._locked.get(self._path) is self

    def release(self) -> None:
        if self.is_held():
            del self._locked[self._path]


class _MemoryOutput(io.BytesIO):
    """What is written into a file once it is closed."""

    def __init__(self, files: MemoryFileSystem, path: str) -> None:
        super().__init__()
        self._files = files
        self._path = path
        files.make_directories(os.path.dirname(path))

    def close(self) -> None:
        if not self.closed:
            self._files.write(self._path, self.getvalue())
        super().close()


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


def _check_room(node: _File | _Directory, there: _File | _Directory | None) -> None:
    """Reject what a rename rejects: replacing another kind, or a directory with files."""
    if there is None or (isinstance(node, _File) and isinstance(there, _File)):
        return
    if isinstance(there, _File):
        raise _error(errno.ENOTDIR)
    if isinstance(node, _File):
        raise _error(errno.EISDIR)
    if there.now:
        raise _error(errno.ENOTEMPTY)


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


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
