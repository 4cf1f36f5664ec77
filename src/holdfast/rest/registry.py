"""The registry in which the command line finds this user's running jobs: a file per server.

    <user's directory>/holdfast-server-<random>/server.json   {"url": ..., "token": ..., ...}

No other user can read the user's directory. A server's directory belongs to its process; see
`holdfast.common.leftovers`.

The token in the file authenticates a client as the user that the server's jobs belong to.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import msgspec

from holdfast.common.leftovers import OwnDirectory, sweep
from holdfast.common.private import open_private, read_private, user_directory

_KIND: Final = "server"
_FILE: Final = "server.json"
_LARGEST: Final = 1 << 16


class Entry(msgspec.Struct, frozen=True):
    """The address of a server, and the token of its owner."""

    url: str
    token: str
    process: int


class Registration:
    """The file of a server of this process."""

    def __init__(self, url: str, token: str) -> None:
        """Write it; other users cannot read it.

        Raises:
            NotPrivateError: if there is no place that other users cannot change.
            OSError: if it cannot be written.
        """
        self._directory = OwnDirectory(user_directory(), _KIND)
        draft = self._directory.path / f".{_FILE}"
        with open(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(msgspec.json.encode(Entry(url, token, os.getpid())))
        draft.rename(self._directory.path / _FILE)

    def remove(self) -> None:
        """Remove the file, when the server ends."""
        self._directory.remove()


def registered() -> list[Entry]:
    """Return the running servers; remove files of servers that have ended."""
    place, found = user_directory(), []
    sweep(place)
    for path in sorted(place.glob(f"holdfast-{_KIND}-*/{_FILE}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found.append(msgspec.json.decode(read_private(path, _LARGEST), type=Entry))
    return found
