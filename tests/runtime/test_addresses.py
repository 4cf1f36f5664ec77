"""Addresses of processes, as they come with tasks and acknowledgements: not believed blindly."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.runtime.network.addresses import Address, Location

KEY = "0123456789abcdef" * 4
SOCKET = "holdfast-socket-0123456789abcdef0123"
ADDRESSES = [
    Address(KEY, socket=SOCKET),
    Address(KEY, host="10.0.0.7", port=4711),
    Address(host="fd00::7", port=4711),
]


@pytest.mark.parametrize("address", ADDRESSES, ids=str)
def test_what_is_sent_is_received(address: Address) -> None:
    location = Location("h1-7", address)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(location), type=Location) == location


def test_an_address_travels_without_its_key() -> None:
    bare = ADDRESSES[0].without_key()
    assert KEY not in repr(bare)
    assert bare.opened_by(bytes.fromhex(KEY)) == ADDRESSES[0]


@pytest.mark.parametrize(
    "found",
    [
        {"key": "0123", "socket": SOCKET},
        {"socket": f"../{SOCKET}"},
        {"socket": f"/tmp/{SOCKET}"},
        {"socket": f"{SOCKET}\n"},
        {"socket": "\0holdfast"},
        {"socket": 7},
        {"host": "example.com", "port": 80},
        {"host": "", "port": 80},
        {"host": "10.0.0.7", "port": 65536},
        {"host": "10.0.0.7", "port": -1},
        {"socket": SOCKET, "more": 1},
        [SOCKET],
    ],
    ids=str,
)
def test_what_is_no_address_is_refused(found: object) -> None:
    data = msgspec.msgpack.encode(found)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=Address)
