"""The range of ports, as a configuration says it."""

from __future__ import annotations

import re

import pytest

from holdfast.common import Configuration
from holdfast.common.options.ports import ANY_PORT, PORT_RANGE, Ports


def read(value: object) -> Ports:
    return PORT_RANGE.get(Configuration({str(PORT_RANGE): value}))


def test_a_range_has_its_first_and_its_last_port() -> None:
    assert list(read(" 50100 - 50102 ")) == [50100, 50101, 50102]
    assert list(read("50100")) == list(read(50100)) == [50100]
    assert str(read("1024-65535")) == "1024-65535"


def test_without_it_any_port_will_do() -> None:
    assert PORT_RANGE.get(Configuration()) is ANY_PORT
    assert list(ANY_PORT) == [0]


@pytest.mark.parametrize(
    "value", ["", "0", "80-90", "1023-2000", "50200-50100", "50100-65536", "5010x", "-1", "1024-"]
)
def test_what_is_no_range_is_told_with_the_key(value: str) -> None:
    message = (
        f"configuration key 'holdfast.port.range': cannot read {value!r} as range of ports: "
        "expected ports from 1024 to 65535, such as 50100-50200"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        read(value)
