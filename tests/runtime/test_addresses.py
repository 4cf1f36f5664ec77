"""Files that say where a process is: whole, for this user alone, and not believed blindly."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.runtime.addresses import Address, BadAddressError, read_address, write_address

KEY = "0123456789abcdef" * 4
ADDRESSES = [
    Address(KEY, socket="holdfast-socket-0123456789abcdef0123"),
    Address(KEY, host="10.0.0.7", port=4711),
    Address(KEY, host="fd00::7", port=4711),
]


@pytest.mark.parametrize("address", ADDRESSES, ids=str)
def test_what_is_written_is_read(tmp_path: Path, address: Address) -> None:
    path = tmp_path / "address"
    assert write_address(path, address, replace=False)
    assert read_address(path) == address
    assert [each.name for each in tmp_path.iterdir()] == ["address"]


def test_only_this_user_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_address(tmp_path / "address", ADDRESSES[0], replace=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "address").stat().st_mode) == 0o600


def test_the_first_one_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "address"
    write_address(path, ADDRESSES[0], replace=False)
    assert not write_address(path, ADDRESSES[1], replace=False)
    assert read_address(path) == ADDRESSES[0]
    assert write_address(path, ADDRESSES[1], replace=True)
    assert read_address(path) == ADDRESSES[1]
    assert len(list(tmp_path.iterdir())) == 1


def test_where_there_is_none(tmp_path: Path) -> None:
    assert read_address(tmp_path / "address") is None


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _link(path: Path) -> None:
    write_address(path.with_name("elsewhere"), ADDRESSES[0], replace=True)
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(os.mkfifo, "is not a regular file", id="a pipe"),
        pytest.param(os.mkdir, "is not a regular file", id="a directory"),
        pytest.param(_link, "is a link", id="a link"),
        pytest.param(_text(" " * 5000), "has more than 4096 bytes", id="a large file"),
        pytest.param(_text(""), "is damaged", id="nothing"),
        pytest.param(_text("[" * 4000), "is damaged", id="depth"),
        pytest.param(
            _text('["holdfast-socket-0123456789abcdef0123"]'), "is damaged", id="another shape"
        ),
        pytest.param(_text('{"key":"0123"}'), "is damaged", id="a short key"),
        *(
            pytest.param(_text(f'{{"key":"{KEY}",{rest}}}'), "is damaged", id=rest)
            for rest in (
                '"socket":"../holdfast-socket-0123456789abcdef0123"',
                '"socket":"/tmp/holdfast-socket-0123456789abcdef0123"',
                r'"socket":"holdfast-socket-0123456789abcdef0123\n"',
                r'"socket":"\u0000holdfast"',
                '"socket":7',
                '"host":"example.com","port":80',
                '"host":"","port":80',
                '"host":"10.0.0.7","port":65536',
                '"host":"10.0.0.7","port":-1',
                '"socket":"holdfast-socket-0123456789abcdef0123","more":1',
            )
        ),
    ],
)
def test_what_is_no_address_is_refused(
    tmp_path: Path, make: Callable[[Path], object], problem: str
) -> None:
    path = tmp_path / "address"
    make(path)
    with pytest.raises(BadAddressError, match=f"/address' {problem}.*(start the job|remove it)"):
        read_address(path)
