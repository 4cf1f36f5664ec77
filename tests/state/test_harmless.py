"""Pickles of anybody's are looked at: nothing runs, nothing changes, and little memory is taken."""

from __future__ import annotations

import contextlib
import copyreg
import datetime
import pickle
import pickletools
import struct
import subprocess
import sys
import uuid
from collections import OrderedDict, defaultdict, deque
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Instant, Row, RowKind
from holdfast.state.errors import PickledStateError
from holdfast.state.types.harmless import Unknown, harmless_loads
from tests.golden.program import Place

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC) | st.just(ZoneInfo("Asia/Tokyo")))
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.builds(Instant, st.integers(0, 9), st.integers(0, 9))
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3).map(OrderedDict)
        | st.lists(inner, max_size=3).map(lambda items: deque(items, 5))
        | st.sets(st.integers() | st.text() | st.dates(), max_size=3)
        | st.frozensets(st.integers() | st.text() | st.decimals(allow_nan=False), max_size=3)
        | st.lists(inner, max_size=3).map(lambda values: Row(*values))
        | st.lists(inner, min_size=2, max_size=2).map(
            lambda values: Row.of_kind(RowKind.DELETE, a=values[0], b=values[1])
        )
    ),
    max_leaves=12,
)


@given(PLAIN, st.sampled_from([4, 5]))
def test_plain_values_are_what_they_were(value: Any, protocol: int) -> None:
    shown = harmless_loads(pickle.dumps(value, protocol))
    assert shown == value
    assert type(shown) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        range(2, 10, 3),
        slice(1, None, 2),
        bytearray(b"ab"),
        RowKind.DELETE,
        datetime.timezone(datetime.timedelta(hours=2), "x"),
        datetime.time(1, 2, 3, 4, datetime.UTC),
        Decimal("1E+999999"),
        10**4000,
        [Decimal("NaN")],
        uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe),
    ],
    ids=repr,
)
def test_other_plain_values(value: Any) -> None:
    for protocol in (4, 5):
        shown = harmless_loads(pickle.dumps(value, protocol))
        assert repr(shown) == repr(value)
        assert type(shown) is type(value)


class Color(Enum):
    RED = 1


class Elsewhere(datetime.tzinfo):
    """A time zone of its own class."""


class Listed(list[int]):
    """A list of its own class."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Place("s", 1), "Place(street='s', number=1)"),
        (Color.RED, "Color(1)"),
        (Listed([1, 2]), "Listed(1, 2)"),
        (defaultdict(list, a=[1]), "defaultdict(list, ('a', [1]))"),
        (print, "print"),
        (datetime.time(tzinfo=Elsewhere()), "time(b'\\x00\\x00\\x00\\x00\\x00\\x00', Elsewhere())"),
        ({Place("s", 1)}, "{Place(street='s', number=1)}"),
        ({Place("s", 1): 2}, "{Place(street='s', number=1): 2}"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_other_objects_are_shown(value: Any, shown: str) -> None:
    found = harmless_loads(pickle.dumps(value))
    assert repr(found) == shown
    assert harmless_loads(pickle.dumps(found)) == found


def name(module: str, attribute: str) -> bytes:
    """A pickle's way to a class or function."""
    return f"c{module}\n{attribute}\n".encode()


ZONE = name("builtins", "getattr") + name("zoneinfo", "ZoneInfo") + b"\x8c\x09_unpickle\x86R"
ROW, ROW_KIND = name("holdfast.common.types", "Row"), name("holdfast.common.types", "RowKind")
INSERT = ROW_KIND + b"K\x00\x85R"
EQUAL = b"}\x8c\x06__eq__" + name("builtins", "len") + b"s"


@pytest.mark.parametrize(
    "program",
    [
        ROW + EQUAL + b"b.",
        ROW + b"N" + EQUAL + b"\x86b.",
        INSERT + b"}\x8c\x06_value_K\x07sb.",
        INSERT + b"N}\x8c\x06_value_K\x07s\x86b.",
        name("datetime", "datetime") + EQUAL + b"b.",
        name("decimal", "Decimal") + b"\x8c\x011\x85R}\x8c\x01xK\x01sb.",
        ZONE + b"\x8c\x03UTC\x85R}\x8c\x03keyK\x07sb.",
        name("uuid", "UUID") + b"}\x8c\x03intK\x05sb.",
        name("holdfast.state.types.harmless", "Unknown") + EQUAL + b"b.",
        name("holdfast.state.types.harmless", "_unknown") + b"K\x05N\x86R.",
        name("holdfast.state.types.harmless", "_unknown") + b"\x8c\x01x]\x86R.",
        name("holdfast.common.types", "Row.__init__.__globals__") + b"]a.",
        name("builtins", "set") + b"]\x85RK\x01\x85b.",
        b"]}\x8c\x01xK\x01sb.",
        name("os", "system") + b"\x8c\x0ctouch forged\x85R.",
        b"(ios\nsystem\n.",
        b"(" + name("os", "system") + b"\x8c\x04trueo.",
        b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85\x81.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"Pforged\n.",
        b"K\x01Q.",
        b"\x97.",
        b"K\x01\x85K\x02R.",
        b"K\x01K\x02\x85R.",
        b"",
        b".",
        b"0.",
        b"K\x01",
        b"(((.",
        b"K\x01K\x02.",
    ],
    ids=repr,
)
def test_nothing_is_called_or_changed(program: bytes) -> None:
    copyreg.add_extension("os", "system", 1)
    try:
        before = snapshot()
        found: Any = None
        with contextlib.suppress(PickledStateError):
            found = harmless_loads(program)
        assert found is None or isinstance(found, Unknown | uuid.UUID), found
        assert repr(found)
        assert snapshot() == before
    finally:
        copyreg.remove_extension("os", "system", 1)


def snapshot() -> Any:
    """What a pickle could have changed."""
    shared = [Row, RowKind, Unknown, datetime.datetime, Decimal, Fraction, uuid.UUID, ZoneInfo]
    return [
        *({key: id(value) for key, value in vars(cls).items()} for cls in shared),
        *(dict(vars(kind)) for kind in RowKind),
        str(ZoneInfo("UTC")),
    ]


BOMBS = {
    "a number of zeros": name("builtins", "bytearray") + b"J\xff\xff\xff\x7f\x85R.",
    "a place far away": b"K\x01r\xff\xff\xff\x7f.",
    "a place in text": b"K\x01p99999999999\n.",
    "bytes that are not there": b"\x8e" + struct.pack("<Q", 1 << 36) + b".",
    "text that is not there": b"\x8d" + struct.pack("<Q", 1 << 36) + b".",
    "an array that is not there": b"\x96" + struct.pack("<Q", 1 << 36) + b".",
    "a fraction": name("fractions", "Fraction") + b"\x8c\x0b1e999999999\x85R.",
    "a decimal as an integer": name("fractions", "Fraction")
    + name("decimal", "Decimal")
    + b"\x8c\x0b1e999999999\x85R\x85R.",
    "an integer": b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20) + b".",
    "nested lists": b"]" * 200_000 + b"a" * 199_999 + b".",
    "nested tuples": b")" + b"\x85" * 200_000 + b".",
    "nested calls": name("os", "system") + b")R" * 100_000 + b".",
    "a list of itself": b"]q\x00h\x00a.",
    "an object of itself": name("os", "x") + b")Rq\x00h\x00b.",
    "lists twice in lists": b"]q\x00" + b"".join(
        b"0(h" + bytes([n]) + b"h" + bytes([n]) + b"lq" + bytes([n + 1]) for n in range(60)
    ) + b".",
    "objects twice in objects": name("a", "b") + b")Rq\x00" + b"".join(
        b"0" + name("a", "b") + b"h" + bytes([n]) * 2 + b"\x86Rq" + bytes([n + 1])
        for n in range(1)
    ) + b".",
    "a time zone": ZONE + b"\x8c\x0d../etc/passwd\x85R.",
}  # fmt: skip


def test_small_pickles_take_little_memory_and_time() -> None:
    """All of them in a process that has 400 MB and a minute of the processor."""
    program = (
        "import pickle, resource, sys\n"
        "from holdfast.state.types.harmless import harmless_loads\n"
        "from holdfast.state.errors import PickledStateError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096 "
        "if sys.platform == 'linux' else 4 << 30\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20),) * 2)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
        "for name, bomb in pickle.load(sys.stdin.buffer).items():\n"
        "    print(name, flush=True)\n"
        "    try:\n"
        "        assert len(repr(harmless_loads(bomb))) < 1000\n"
        "    except PickledStateError as error:\n"
        "        assert 'without their classes: ' in str(error)\n"
        "        assert 'MemoryError' not in str(error), name\n"
    )
    child = [sys.executable, "-c", program]
    done = subprocess.run(child, input=pickle.dumps(BOMBS), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:] + done.stdout.decode()
    assert done.stdout.decode().splitlines() == list(BOMBS)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(PickledStateError):
        repr(harmless_loads(data))


@given(PLAIN, st.data())
def test_any_changed_pickle(value: Any, data: st.DataObject) -> None:
    pickled = bytearray(pickle.dumps([value, Place("s", 1), RowKind.DELETE]))
    for _ in range(data.draw(st.integers(1, 3))):
        pickled[data.draw(st.integers(0, len(pickled) - 1))] = data.draw(st.integers(0, 255))
    before = snapshot()
    with contextlib.suppress(PickledStateError):
        repr(harmless_loads(bytes(pickled)))
    assert snapshot() == before


def test_every_operation_of_pickle_is_known_or_refused() -> None:
    """A later Python may have more, which are refused then."""
    from holdfast.state.types import pickled_data

    known = {*pickled_data._OPERATIONS, *pickled_data._CONSTANTS, *pickled_data._IGNORED}
    names = {opcode.name for opcode in pickletools.opcodes}
    assert known <= names
    assert names - known == {
        *("EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER")
    }
