"""A lock where the file system has none: a file that its holder writes again and again.

The holder renews the file every few seconds. A process that finds one watches it: if it changes,
the holder is alive; if it does not change for the time of a lease, the holder is dead, and the
process writes it in its own name. Clocks of two machines are never compared. If the holder's
process was on this machine and has ended, there is nothing to wait for.

Guarantee: of two processes that both believe to have the lease, because they started in the
same moment or one of them was suspended for longer than a lease, one is told with its next
``is_held`` that it has lost it, because the file can only have one holder. Not guaranteed:
``is_held`` and the action after it are two steps. An action that must not happen twice needs a name
by which a repetition is noticed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.filesystem.base import FileSystem, FileSystemError, LockedError, MissingFileError
from holdfast.printable import get_logger


@dataclass(frozen=True)
class LeaseTimes:
    """The timing of a lease, in seconds.

    Attributes:
        renewal: time between two writes of the holder.
        lease: time without a write after which the holder counts as dead.
        look: time between two checks by others.
    """

    renewal: float = 3.0
    lease: float = 15.0
    look: float = 0.5


_TIMES: Final = LeaseTimes()
_logger = get_logger(__name__)


class _Record(msgspec.Struct, frozen=True):
    """What is in the file."""

    token: str
    host: str
    pid: int
    renewals: int
    contents: bytes


#: a write in progress, or one that was interrupted
_UNREADABLE: Final = _Record("", "", 0, 0, b"")


class Lease:
    """A lease that this process has, from the moment it is made until it is released or lost."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        contents: bytes,
        times: LeaseTimes = _TIMES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the lease; waits to see whether another process has it.

        Raises:
            LockedError: when another process has it.
        """
        self._files = files
        self._path = path
        self._times = times
        self._record = _Record(
            uuid.uuid4().hex, socket.gethostname(), os.getpid(), 0, bytes(contents)
        )
        self._lost = False
        self._over = threading.Event()
        self._at_work = threading.RLock()
        self._wait_for_others(sleep)
        self._write()
        if not self.is_held():
            raise self._locked(self._read())
        thread = threading.Thread(target=self._keep, name="holdfast-lease", daemon=True)
        thread.start()

    @property
    def is_lost(self) -> bool:
        """Return whether another process has it, or it is no longer renewed."""
        return self._lost

    def is_held(self) -> bool:
        """Return whether the file still names this process."""
        with self._at_work:
            if not self._lost and not self._over.is_set():
                found = self._read()
                self._lost = found is None or found.token != self._record.token
            return not self._lost and not self._over.is_set()

    def release(self) -> None:
        """Delete the file if it still names this process; if that fails, the lease expires."""
        with self._at_work:
            try:
                with contextlib.suppress(FileSystemError):
                    if self.is_held():
                        self._files.delete(self._path)
            finally:
                self._over.set()  # or it would be renewed for ever

    def renew(self) -> None:
        """Write the file again, unless another process has taken it."""
        with self._at_work:
            if self.is_held():
                self._record = msgspec.structs.replace(
                    self._record, renewals=self._record.renewals + 1
                )
                self._write()

    def _keep(self) -> None:
        """Renew until it is released or lost; retry if the file system does not answer.

        However long that takes: as long as the file names this process, no other has taken it.
        If this thread ends, the lease is lost.
        """
        renewed = told = time.monotonic()
        while not self._over.wait(self._times.renewal) and not self._lost:
            try:
                self.renew()
                renewed = told = time.monotonic()
            except Exception as error:
                if time.monotonic() - told > self._times.lease:
                    told = time.monotonic()
                    self._warn(
                        f"could not be renewed for {told - renewed:.0f} s, and may be taken "
                        f"over by another job: {error!r}; it is tried again"
                    )
            except BaseException as error:
                self._lost = True
                self._warn(f"is lost: cannot renew it: {error!r}")

    def _warn(self, what: str) -> None:
        _logger.warning("the lock '%s' %s", self._files.uri(self._path), what)

    def _wait_for_others(self, sleep: Callable[[float], None]) -> None:
        first = self._read()
        waited = 0.0
        while first is not None and waited < self._times.lease and not _is_dead(first):
            sleep(self._times.look)
            waited += self._times.look
            now = self._read()
            if now is not None and now != first:
                raise self._locked(now)
            first = now

    def _locked(self, by: _Record | None) -> LockedError:
        holder = b"" if by is None else by.contents
        return LockedError(f"'{self._files.uri(self._path)}' is locked", holder)

    def _read(self) -> _Record | None:
        try:
            return msgspec.msgpack.decode(self._files.read(self._path), type=_Record)
        except MissingFileError:
            return None
        except msgspec.MsgspecError:
            return _UNREADABLE

    def _write(self) -> None:
        # NB: in place. On HDFS, to write a file and rename it would leave a moment without any.
        data = msgspec.msgpack.encode(self._record)
        with self._files.errors("write", self._path), self._files.open_output(self._path) as out:
            out.write(data)


def _is_dead(record: _Record) -> bool:
    """Return whether the holder was a process of this machine that has ended."""
    if record.host != socket.gethostname():
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
