"""The sockets at which processes of a job listen.

A Unix socket is a file in a directory of this user, where nobody else can connect to it. Its name
begins with the id of the process that listens there; whoever makes the next one removes those of
processes that are gone. An IP socket listens at one address of this host, not at all of them.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.common.private import NotPrivateError, make_private, user_directory

__all__ = ["is_alive", "listen_at", "listen_here", "own_ip", "socket_path", "sweep_sockets"]

_FOLDER: Final = "sockets"
#: the longest path of a Unix socket, in bytes: 103 on macOS, 107 on Linux
_LONGEST: Final = 103
#: the longest name that `listen_here` gives a socket
_NAME: Final = len("4294967295-01234567")
#: an address of no host, to which packets would leave through the interface to other hosts
_ELSEWHERE: Final = ("192.0.2.1", 9)


def listen_here() -> tuple[socket.socket, str]:
    """Return a Unix socket that listens, and its name.

    Raises:
        NotPrivateError: when there is no directory for it.
    """
    sweep_sockets()
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    path = socket_path(name)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(socket.SOMAXCONN)
    except BaseException:
        listener.close()
        raise
    return listener, name


def listen_at(host: str) -> socket.socket:
    """Return a socket that listens at an IP address of this host, at a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)


def socket_path(name: str) -> Path:
    """Return the path of a Unix socket of this user.

    Raises:
        NotPrivateError: when there is no directory that is this user's, with a path short enough.
    """
    return _directory() / name


def sweep_sockets() -> None:
    """Remove the Unix sockets of processes that are gone."""
    for path in _directory().iterdir():
        process, _, _ = path.name.partition("-")
        # NB: a process that is not found may be one of another container with the same directory
        if process.isdecimal() and not is_alive(int(process)) and _is_refused(path):
            path.unlink(missing_ok=True)


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


def is_alive(process: int) -> bool:
    """Return whether there is a process of this id."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _directory() -> Path:
    """Return the directory of Unix sockets; the temporary directory may have too long a path."""
    for base in _bases():
        path = base / _FOLDER
        if len(os.fsencode(path)) + 1 + _NAME <= _LONGEST:
            return make_private(path)
    raise NotPrivateError(
        f"there is no directory for sockets whose path has at most {_LONGEST - _NAME - 1} bytes; "
        "set HOLDFAST_RUNTIME_DIR to a shorter one"
    )


def _bases() -> Iterator[Path]:
    yield user_directory()
    for path in (Path("/tmp", f"holdfast-{os.getuid()}"), Path("~/.cache/holdfast").expanduser()):
        with suppress(NotPrivateError):
            yield make_private(path)


def _is_refused(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
