"""The sockets at which processes of a job listen.

A Unix socket is in a directory of its process (`holdfast.common.leftovers`), where nobody else can
connect to it. An IP socket listens at one address of this host, not at all of them.

    <user's directory>/holdfast-socket-<random>/s
"""

from __future__ import annotations

import ipaddress
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.common.leftovers import OwnDirectory, named
from holdfast.common.private import NotPrivateError, make_private, user_directory
from holdfast.errors import JobExecutionError

__all__ = ["check_room", "listen_at", "listen_here", "own_ip", "socket_path"]

_KIND: Final = "socket"
_FILE: Final = "s"
#: the longest path of a Unix socket, in bytes: 103 on macOS, 107 on Linux
_LONGEST: Final = 103
_LONGEST_BASE: Final = _LONGEST - len(f"/{named(_KIND, bytes(99))}/{_FILE}")
#: an address of no host, to which packets would leave through the interface to other hosts
_ELSEWHERE: Final = ("192.0.2.1", 9)

#: open files of a process besides its connections: modules, state files, pipes to Spark
_OTHER_FILES: Final = 200


def check_room(connections: int, who: str) -> None:
    """Let this process have so many connections.

    Raises:
        JobExecutionError: when the system's limit of open files does not allow that.
    """
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise JobExecutionError(
            f"{who} needs {needed} open files on host '{socket.gethostname()}' for its "
            f"connections, and may have {hard}; raise the limit ('ulimit -n'), or lower the "
            "parallelism ('parallelism.default')"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def listen_here() -> tuple[socket.socket, OwnDirectory]:
    """Return a Unix socket that listens, and its directory, which has the name to find it by.

    Raises:
        NotPrivateError: when there is no place for it.
    """
    directory = OwnDirectory(_base(), _KIND)
    path = directory.path / _FILE
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(socket.SOMAXCONN)
    except BaseException:
        listener.close()
        directory.remove()
        raise
    return listener, directory


def listen_at(host: str) -> socket.socket:
    """Return a socket that listens at an IP address of this host, at a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)


def socket_path(name: str) -> Path:
    """Return the path of a Unix socket of this user, by the name of its directory.

    Raises:
        NotPrivateError: when there is no place for such sockets.
    """
    return _base() / name / _FILE


def own_ip() -> str:
    """Return the IP address at which other hosts reach this one, as Spark's executors find theirs.

    That is ``SPARK_LOCAL_IP``, or what the host's name stands for, or, if that is a loopback
    address, the address of the interface to other hosts.
    """
    name = os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
    with suppress(OSError):
        found = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
        if not ipaddress.ip_address(found).is_loopback:
            return found
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _base() -> Path:
    """Return where the directories of Unix sockets are; other paths than this may be too long."""
    for path in _bases():
        if len(os.fsencode(path)) <= _LONGEST_BASE:
            return path
    raise NotPrivateError(
        f"there is no directory for sockets whose path has at most {_LONGEST_BASE} bytes; set "
        "HOLDFAST_RUNTIME_DIR to a shorter one"
    )


def _bases() -> Iterator[Path]:
    yield user_directory()
    for path in (Path("/tmp", f"holdfast-{os.getuid()}"), Path("~/.cache/holdfast").expanduser()):
        with suppress(NotPrivateError):
            yield make_private(path)
