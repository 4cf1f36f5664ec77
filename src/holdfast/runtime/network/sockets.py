"""The sockets on which processes of a job listen.

A Unix socket is in a directory of its process (`holdfast.common.leftovers`), where no other user
can connect to it. An IP socket listens on one address of this host, not on all of them.

    <user's directory>/holdfast-socket-<random>/s
"""

from __future__ import annotations

import errno
import ipaddress
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.common.leftovers import OwnDirectory, named
from holdfast.common.options.ports import ANY_PORT, PORT_RANGE, Ports
from holdfast.common.private import NotPrivateError, make_private, user_directory
from holdfast.errors import JobExecutionError

_KIND: Final = "socket"
_FILE: Final = "s"
#: the longest path of a Unix socket, in bytes: 103 on macOS, 107 on Linux
_LONGEST: Final = 103
_LONGEST_BASE: Final = _LONGEST - len(f"/{named(_KIND, bytes(99))}/{_FILE}")
#: an address that belongs to no host; packets to it would use the interface to other hosts
_ELSEWHERE: Final = ("192.0.2.1", 9)

#: allowance for open files besides connections: modules, state files, pipes to Spark
_OTHER_FILES: Final = 200


def check_room(connections: int, who: str) -> None:
    """Make sure that this process may have this many connections.

    Raises:
        JobExecutionError: when the system's limit of open files does not allow it.
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
    """Return a listening Unix socket and its directory, whose name identifies it.

    Raises:
        NotPrivateError: when there is no directory for it.
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


class CannotListenError(JobExecutionError):
    """This process cannot listen on an address."""


def listen_at(host: str, ports: Ports = ANY_PORT) -> socket.socket:
    """Return a socket that listens on an IP address of this host, on the first free port.

    Raises:
        CannotListenError: when no port is free, or the address does not belong to this host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        try:
            return socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _not_here(host, error) from error
    raise CannotListenError(
        f"no port from {ports.first} to {ports.last} is free at {host} (host "
        f"'{socket.gethostname()}'): set '{PORT_RANGE}' to a larger range"
    )


def _not_here(host: str, error: OSError) -> CannotListenError:
    return CannotListenError(
        f"cannot listen at {host} on host '{socket.gethostname()}': {error.strerror or error}; set "
        "'spark.driver.bindAddress' for the driver, or SPARK_LOCAL_IP for an executor, to an "
        "address of its host"
    )


def socket_path(name: str) -> Path:
    """Return the path of a Unix socket of this user, by the name of its directory.

    Raises:
        NotPrivateError: when there is no directory for such sockets.
    """
    return _base() / name / _FILE


def own_ip() -> str:
    """Return the IP address at which other hosts reach this one, as Spark's executors find theirs.

    It is ``SPARK_LOCAL_IP``, or the address of the host's name, or, if that is a loopback address,
    the address of the interface to other hosts.
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


def ip_of(host: str, setting: str, v6: bool | None = None) -> str:
    """Return the IP address of a host, whose name or address is the value of a Spark setting.

    ``v6``: whether an IPv6 address is needed; by default either will do.

    Raises:
        JobExecutionError: when the name cannot be resolved here.
    """
    family = socket.AF_UNSPEC if v6 is None else socket.AF_INET6 if v6 else socket.AF_INET
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, family, socket.SOCK_STREAM)
    except OSError as error:
        raise JobExecutionError(
            f"host '{socket.gethostname()}' cannot resolve '{host}', which is '{setting}': "
            f"{error.strerror or error}; set it to a name or an address that is known there"
        ) from error
    return str(found[0][4][0])


def _base() -> Path:
    """Return the parent directory for Unix sockets; skip paths that are too long."""
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
