from __future__ import annotations

import dataclasses
import datetime as dt
import subprocess
import sys
import uuid
from collections import Counter
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.types import Row
from holdfast.state import key_groups
from holdfast.state.key_groups import (
    KeyRouter,
    key_group,
    key_group_range,
    key_groups_of,
    key_hash,
    subtask_of,
    unusable_key,
)


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Pair(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass(frozen=True)
class Account:
    bank: str
    number: int
    note: str = dataclasses.field(default="", compare=False)


class Point(msgspec.Struct, frozen=True):
    x: int
    y: int


class Plain:
    def __init__(self, a: int, b: str) -> None:
        self.b, self.a = b, a

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.a, self.b))


class Identity:
    pass


BERLIN = dt.timezone(dt.timedelta(hours=2))

#: what a saved state relies on: these numbers must never change
GOLDEN = {
    "": 0,
    "user-1": 2116437524,
    "grün": 1570091429,
    0: 0,
    1: 1327217884,
    -7: 1446893046,
    1 << 80: 1726348585,
    2.5: 1178040761,
    b"\x00\xff": 1826356594,
    None: 1852796517,
    ("a", 1): 1115821959,
}

GOLDEN_GROUPS = {"user-1": 65, "grün": 40, 1: 7, -7: 36, 2.5: 53, None: 70, ("a", 1): 120}


def test_hashes_are_what_saved_state_relies_on() -> None:
    assert {key: key_hash(key) for key in GOLDEN} == GOLDEN
    assert {key: key_group(key, 128) for key in GOLDEN_GROUPS} == GOLDEN_GROUPS


def test_hashes_do_not_depend_on_the_process() -> None:
    keys = [*GOLDEN, (("x", None), frozenset({"a", "b", "c"}), dt.date(2024, 1, 1))]
    code = (
        "import datetime\nfrom holdfast.state.key_groups import key_hash\n"
        f"print([key_hash(k) for k in {keys!r}])"
    )
    seeded = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "42", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert seeded.stdout.strip() == repr([key_hash(key) for key in keys])


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, Decimal(1), Fraction(1), np.int64(1), np.float32(1), 1 + 0j, Level.LOW],
        [0.5, Decimal("0.5"), Fraction(1, 2)],
        ["a", np.str_("a")],
        [(1, "x"), Pair(1, "x"), (1.0, "x")],
        [frozenset({1, "a"}), frozenset({"a", 1.0})],
        [
            dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2024, 5, 1, 14, tzinfo=BERLIN),
        ],
        [dt.time(12, tzinfo=dt.UTC), dt.time(14, tzinfo=BERLIN)],
        [Account("x", 1, "one"), Account("x", 1, "two")],
        [Row(a=1, b="x"), Row(b="x", a=1)],
        [Point(1, 2), Point(1, 2)],
        [Plain(1, "x"), Plain(1, "x")],
    ],
)
def test_equal_keys_have_equal_hashes(equal: list[Any]) -> None:
    assert all(key == equal[0] for key in equal)
    assert len({key_hash(key) for key in equal}) == 1


def test_different_keys_have_different_hashes() -> None:
    keys = [
        *("a", "b", 1, 2, 1.5, b"c", None, (), (1,), (1, 2), (2, 1), Color.RED, "RED"),
        *(dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        *(dt.time(1), dt.time(2), dt.timedelta(1), uuid.UUID(int=1), uuid.UUID(int=2)),
        *(Account("x", 1), Account("x", 2), Point(1, 2), Point(2, 1), Plain(1, "x")),
        *(Row(a=1, b=2), Row(a=2, b=1), frozenset({7}), frozenset({8})),
    ]
    assert len({key_hash(key) for key in keys}) == len(keys)


def test_nan_has_a_hash() -> None:
    assert key_hash(float("nan")) == key_hash(float("nan"))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ([1], r"a list cannot be a key.*\[1\]; declare its type, as in key_by.* or return tuple\("),
        ({"a": 1}, r"a dict cannot be a key.*tuple\(sorted"),
        ({1}, r"a set cannot be a key.*frozenset"),
        (("a", [1]), r"a list cannot be a key.*\[1\]"),
        (Identity(), r"a Identity cannot be a key, because it equals only itself"),
    ],
)
def test_unusable_keys_say_what_to_do(key: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        key_hash(key)
    error = unusable_key(key)
    assert error is not None
    assert str(error)


def test_a_usable_key_has_no_error() -> None:
    assert unusable_key(("a", 1)) is None


@given(st.integers(1, 400), st.integers(1, 400))
def test_ranges_cover_every_key_group_once(a: int, b: int) -> None:
    parallelism, max_parallelism = sorted((a, b))
    ranges = [key_group_range(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert [g for r in ranges for g in r] == list(range(max_parallelism))
    for subtask, groups in enumerate(ranges):
        assert {subtask_of(g, parallelism, max_parallelism) for g in groups} == {subtask}


@pytest.mark.parametrize(
    ("subtask", "parallelism", "maximum", "message"),
    [
        (2, 2, 128, r"subtask must be in 0\.\.1; got 2"),
        (0, 129, 128, "got parallelism 129 and max parallelism 128"),
        (0, 0, 128, "got parallelism 0"),
    ],
)
def test_wrong_parallelism(subtask: int, parallelism: int, maximum: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        key_group_range(subtask, parallelism, maximum)


@given(
    st.one_of(
        st.lists(st.text()),
        st.lists(st.text(alphabet=st.characters(exclude_categories=()))),
        st.lists(st.integers()),
        st.lists(st.one_of(st.text(), st.integers(), st.none(), st.floats())),
        st.lists(st.tuples(st.integers(), st.text(), st.tuples(st.integers()))),
        st.lists(st.lists(st.integers(), max_size=2).map(tuple)),
    )
)
def test_many_keys_at_once_are_the_same(keys: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_groups, "_AT_ONCE", 4)
        assert key_groups_of(keys, 128).tolist() == [key_group(key, 128) for key in keys]


@given(
    st.one_of(
        st.lists(st.lists(st.integers(0, 30))),
        st.lists(st.lists(st.tuples(st.integers(0, 5), st.text(max_size=1)))),
        st.lists(st.lists(st.one_of(st.integers(0, 30), st.none(), st.floats()))),
    )
)
def test_router_sends_a_key_to_the_owner_of_its_key_group(batches: list[list[Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_groups, "_ROUTER_LIMIT", 10)
        patch.setattr(key_groups, "_QUICK_LIMIT", 5)
        _check_targets(batches)


def _check_targets(batches: list[list[Any]]) -> None:
    router = KeyRouter(3, 128)
    for keys in batches:
        for key, target in zip(keys, router.targets(keys), strict=True):
            assert key_group(key, 128) in key_group_range(target, 3, 128)


def test_router_spreads_keys() -> None:
    router = KeyRouter(4)
    counts = Counter(router.targets(range(4000)))
    assert min(counts[target] for target in range(4)) > 900


def test_router_refuses_keys_without_a_stable_hash() -> None:
    with pytest.raises(TypeError, match="equals only itself"):
        KeyRouter(2).targets([Identity()])
