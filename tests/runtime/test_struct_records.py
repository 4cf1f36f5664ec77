"""Structs on their way: whatever is in them arrives exactly as it was."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.wire.blocks import decode_records, encode_records
from holdfast.runtime.wire.struct_records import PAIRS, STRUCTS

T = TypeVar("T")


class Item(msgspec.Struct, frozen=True, gc=False):
    product: str
    price: Decimal
    quantity: int = 1


class Order(msgspec.Struct, frozen=True):
    id: str
    step: Literal["created", "paid", 7]
    amount: float
    is_new: bool
    items: tuple[Item, ...] = ()
    note: str | None = None
    data: bytes = b""
    first: Item | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    tags: list[int | float] = []


class Other(Order, frozen=True):
    pass


def is_same(one: Any, other: Any) -> bool:
    """Equal, and of the same types throughout; a NaN is what it is."""
    if type(one) is not type(other):
        return False
    if isinstance(one, msgspec.Struct):
        return is_same(msgspec.structs.astuple(one), msgspec.structs.astuple(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return is_same(list(one.items()), list(other.items()))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return str(one) == str(other) if isinstance(one, Decimal) else bool(one == other)


text = st.text(max_size=5)
whole = st.integers(-(2**70), 2**70) | st.integers(-5, 5)
decimals = st.decimals() | st.decimals(places=2, allow_nan=False, allow_infinity=False)
items = st.builds(Item, text, decimals, whole)
orders = st.builds(
    Order,
    text,
    st.sampled_from(["created", "paid", 7]),
    st.floats(),
    st.booleans(),
    st.lists(items, max_size=3).map(tuple),
    st.none() | text,
    st.binary(max_size=3),
    st.none() | items,
    st.dictionaries(text, whole, max_size=2),
    st.lists(whole | st.floats(), max_size=2),
)
#: what annotations do not say: other types, or values, in the fields of a struct
anything = st.one_of(
    st.none(),
    st.booleans(),
    whole,
    st.floats(),
    text,
    st.binary(max_size=2),
    decimals,
    items,
    st.builds(Other, text, st.just("paid"), st.just(0.0), st.just(False)),
    st.lists(items | whole, max_size=2),
    st.lists(items | text, max_size=2).map(tuple),
    st.dictionaries(text | whole, whole | text, max_size=2),
)
fields = st.sampled_from(Order.__struct_fields__)


@st.composite
def wrong_orders(draw: st.DrawFn) -> Order:
    values = msgspec.structs.asdict(draw(orders)) | {draw(fields): draw(anything)}
    return Order(**values)


stamps = st.none() | st.integers(-(2**63), 2**63 - 1)
records = st.lists(orders | wrong_orders(), min_size=1, max_size=4)


@given(records | st.lists(st.tuples(orders | wrong_orders(), stamps), min_size=1, max_size=4))
def test_records_arrive_as_they_were(sent: list[Any]) -> None:
    assert is_same(decode_records(memoryview(encode_records(sent))), sent)


@given(st.lists(orders | items | whole | st.tuples(orders, stamps | st.booleans()), min_size=1))
def test_records_of_several_kinds_arrive_as_they_were(sent: list[Any]) -> None:
    assert is_same(decode_records(encode_records(sent)), sent)


ORDER = Order("a", "paid", 1.5, True, (Item("x", Decimal("1.10")),))


@pytest.mark.parametrize(
    ("sent", "begin"), [([ORDER, ORDER], STRUCTS), ([(ORDER, 5), (ORDER, None)], PAIRS)]
)
def test_structs_do_without_pickle(sent: list[Any], begin: int) -> None:
    assert encode_records(sent)[0] == begin


class Bounded(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=0)]


class Short(msgspec.Struct):
    texts: Annotated[list[str], msgspec.Meta(max_length=1)]


class Anything(msgspec.Struct):
    value: Any


class Typed(msgspec.Struct, Generic[T]):
    value: T


class Node(msgspec.Struct):
    number: int
    after: Node | None = None


class Brief(msgspec.Struct, omit_defaults=True):
    number: int = 0


class Open(msgspec.Struct, dict=True):
    number: int = 0


class OwnWay(msgspec.Struct):
    number: int

    def __reduce__(self) -> Any:
        return OwnWay, (self.number + 1,)


class Numbered(msgspec.Struct):
    numbers: dict[int, str]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Bounded(-1), id="a bound that it does not keep"),
        pytest.param(Short(["a", "b"]), id="a length that it does not keep"),
        pytest.param(Anything((1, 2)), id="any type"),
        pytest.param(Typed((1, 2)), id="a type variable"),
        pytest.param(Node(1, Node(2)), id="a type within itself"),
        pytest.param(Brief(False), id="fields that are left out"),
        pytest.param(Open(), id="more than its fields"),
        pytest.param(Numbered({1: "a"}), id="keys that are no text"),
    ],
)
def test_what_messagepack_may_not_keep_is_pickled(record: Any) -> None:
    data = encode_records([record])
    assert data[0] not in (STRUCTS, PAIRS)
    assert is_same(decode_records(data), [record])


def test_a_class_that_is_pickled_in_its_own_way_is_pickled_so() -> None:
    assert decode_records(encode_records([OwnWay(1)])) == [OwnWay(2)]


def test_a_class_that_was_defined_again_is_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, where the workers of one session see one job after another."""
    sent = encode_records([Item("a", Decimal(1))])
    decode_records(sent)
    renewed = msgspec.defstruct("Item", [("product", str), ("price", Decimal), ("quantity", int)])
    renewed.__module__, renewed.__qualname__ = Item.__module__, "Item"
    monkeypatch.setitem(globals(), "Item", renewed)
    (received,) = decode_records(sent)
    assert type(received) is renewed
    assert pickle.loads(pickle.dumps(received)) == received
