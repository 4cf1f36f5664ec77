"""The user of this machine that a client on loopback belongs to.

Every user of a machine can connect to its loopback addresses, so an address does not identify a
user. Linux reports the owner of every socket over netlink (``sock_diag(7)``, which ``ss`` uses). A
request takes about 15 µs, however many connections the machine has. macOS has no such interface.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

#: a host and a port
Address = tuple[str, int]

_ROOT: Final = 0
_HAS_NETLINK: Final = hasattr(socket, "AF_NETLINK")
_SECONDS: Final = 1.0

# <linux/netlink.h>, <linux/sock_diag.h> and <linux/inet_diag.h>
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
#: struct nlmsghdr: length, type, flags, sequence number, port
_MESSAGE: Final = struct.Struct("=IHHII")
#: struct inet_diag_req_v2 up to the addresses: family, protocol, extensions, padding, states
_REQUEST: Final = struct.Struct("=BBBBI")
#: struct inet_diag_sockid: ports, addresses; then any interface and any cookie
_PORTS: Final = struct.Struct("!HH")
_ADDRESS_BYTES: Final = 16
_ANY: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
#: struct inet_diag_msg: state; the socket's id is skipped; user and inode
_ANSWER: Final = struct.Struct("=xBxx48x12xII")
_ALL_STATES: Final = 0xFFFFFFFF
_ESTABLISHED: Final = 1


def is_own_user(client: Address | None, server: Address | None) -> bool:
    """Return whether a client on loopback belongs to the user of this process, or to root.

    True on systems that do not report the owner of a socket. False if the connection is closed.
    """
    if not _HAS_NETLINK:
        return True
    if client is None or server is None:  # NB: a disconnected client has no address any more
        return False
    return user_of(client, server) in (os.getuid(), _ROOT)


def user_of(client: Address, server: Address) -> int | None:
    """Return the user that the client's end of a connection belongs to; None if there is none."""
    try:
        answer = _ask(client, server)
        _, kind, *_ = _MESSAGE.unpack_from(answer)
        if kind != _SOCK_DIAG_BY_FAMILY:
            return None
        state, user, inode = _ANSWER.unpack_from(answer, _MESSAGE.size)
    except (OSError, struct.error):
        return None
    # NB: a socket that its process has closed has no inode and is listed as root's, and where there
    # is no such connection, a socket that listens on the client's port is found instead
    return int(user) if state == _ESTABLISHED and inode else None


def _ask(client: Address, server: Address) -> bytes:
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = [socket.inet_pton(family, host) for host, _ in (client, server)]
    body = b"".join(
        (
            _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES),
            _PORTS.pack(client[1], server[1]),
            *(end.ljust(_ADDRESS_BYTES, b"\0") for end in ends),
            _ANY,
        )
    )
    length = _MESSAGE.size + len(body)
    header = _MESSAGE.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_SECONDS)
        kernel.send(header + body)
        return kernel.recv(8192)
