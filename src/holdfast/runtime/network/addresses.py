"""Addresses of the processes of a job.

A process that communicates only within its host listens on a Unix socket in this user's own
directory, and its address is a name. Any other process listens on an IP address and a port. An
address in the tasks and acknowledgements of an epoch has no key: a process that may connect has the
job's key (`JobCode.key`).
"""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a process listens, and the key for it.

    Attributes:
        key: the secret that both sides prove to have, in hexadecimal digits; empty if it is known
            from another place.
        socket: the name of a Unix socket; empty for a process that listens on host and port.
        host: an IP address.
    """

    key: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    socket: Annotated[str, msgspec.Meta(pattern=r"\A(holdfast-socket-[0-9a-f]{20})?\Z")] = ""
    host: str = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0

    def __post_init__(self) -> None:
        """Reject a host name, because it could resolve to any address."""
        if not self.socket:
            ipaddress.ip_address(self.host)

    def __str__(self) -> str:
        return f"socket {self.socket}" if self.socket else f"{self.host} port {self.port}"

    def opened_by(self, key: bytes) -> Address:
        """Return the address with a key."""
        return msgspec.structs.replace(self, key=key.hex())

    def without_key(self) -> Address:
        """Return the address without its key, as it may be sent."""
        return msgspec.structs.replace(self, key="")


class Location(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The process in which a subtask lives.

    Attributes:
        executor: identifies the executor that it belongs to.
        address: for processes of the same executor, or machine, without its key.
        far: for processes on other hosts, without its key; None if there are none.
    """

    executor: str
    address: Address
    far: Address | None = None
