"""Where a process of a job can be reached: a small file in the job's directory.

The file holds an address and the key that opens it, as JSON. A process on the same host listens at
a Unix socket, of which the file has only a name: the socket is in this user's own directory. Any
other one listens at an IP address and a port. Other users cannot read the file, and what is read
from it is checked before it is used.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from pathlib import Path
from typing import Annotated, Final

import msgspec

from holdfast.common.private import NotPrivateError, open_regular
from holdfast.errors import HoldfastError

__all__ = ["Address", "BadAddressError", "read_address", "write_address"]

#: the largest file that is read, in bytes
_LARGEST: Final = 4096


class BadAddressError(HoldfastError):
    """A file does not hold an address."""


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a process listens, and the key for it.

    Attributes:
        key: the secret that both sides prove to have, in hexadecimal digits.
        socket: the name of a Unix socket; empty for a process that listens at host and port.
        host: an IP address.
    """

    key: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    socket: Annotated[str, msgspec.Meta(pattern=r"\A(holdfast-socket-[0-9a-f]{20})?\Z")] = ""
    host: str = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0

    def __post_init__(self) -> None:
        """Refuse a host that is a name: it could be looked up anywhere."""
        if not self.socket:
            ipaddress.ip_address(self.host)

    def __str__(self) -> str:
        return f"socket {self.socket}" if self.socket else f"{self.host} port {self.port}"


def read_address(path: Path) -> Address | None:
    """Return the address in a file, or None if there is no such file.

    Raises:
        BadAddressError: when it is not a regular file, or holds something else.
    """
    try:
        # NB: not `read_private`: network file systems may show files under another user id
        with open(open_regular(path), "rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except NotPrivateError as error:
        raise BadAddressError(str(error)) from error
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from error
    if len(data) > _LARGEST:
        raise _bad(path, f"has more than {_LARGEST} bytes")
    try:
        return msgspec.json.decode(data, type=Address)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"is damaged: {error}") from error


def write_address(path: Path, address: Address, replace: bool) -> bool:
    """Write an address, which only this user can read; the file appears as a whole.

    Returns:
        False if there is a file already, and it is not to be replaced.

    Raises:
        OSError: when it cannot be written.
    """
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(address))
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return True


def _bad(path: Path, problem: str) -> BadAddressError:
    return BadAddressError(
        f"'{path}' {problem}; it should hold the address of a process of this job, and nobody else "
        "should write there: look for who did, and start the job again"
    )
