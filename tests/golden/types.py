"""A value or two of every type that a state can be declared with, and types they are read as later.

`make.py` writes them into a state file, one value state for each type, the values by their number.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, IntEnum
from io import BytesIO
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.common import Instant, Row, Types
from holdfast.common.serializer import TypeSerializer
from holdfast.common.typeinfo import LocalTimeTypeInfo, type_info_of
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.state.backend import Head, HeapKeyedStateBackend, KeyContext
from holdfast.state.format.files import Section
from holdfast.state.format.head import FileRef
from holdfast.state.format.stored_files import read_file
from holdfast.testing.storage import MemoryStateStorage

OPERATOR = "types"
_KEY_GROUPS = 8


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Grade(IntEnum):
    GOOD = 1
    BAD = 2


class Size(NamedTuple):
    width: int
    height: float = 0.5


class Tagged(msgspec.Struct, tag="tagged", frozen=True):
    name: str


class Listed(msgspec.Struct, array_like=True):
    first: int
    second: str | None = None


@dataclasses.dataclass
class Item:
    id: uuid.UUID
    price: Decimal
    tags: set[str]
    grade: Grade = Grade.GOOD
    parts: list[Item] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Order:
    id: str
    amount: int
    at: datetime.datetime
    took: datetime.timedelta
    items: tuple[Item, ...] = ()
    colour: Colour | None = None
    note: Literal["a", "b"] = "a"
    what: Tagged | int = 3
    sizes: dict[str, Size] = dataclasses.field(default_factory=dict)


class TextSerializer(TypeSerializer[Any]):
    version = 1

    def serialize(self, element: Any, stream: BytesIO) -> None:
        stream.write(element.encode())

    def deserialize(self, stream: BytesIO) -> Any:
        return stream.read().decode()


class NewTextSerializer(TextSerializer):
    """The next version of it."""

    version = 2

    def reader(self, version: int) -> Callable[[BytesIO], Any] | None:
        return (lambda stream: f"was {stream.read().decode()}") if version == 1 else None


NewTextSerializer.__qualname__ = TextSerializer.__qualname__

_DAY = datetime.date(2024, 2, 29)
_TIME = datetime.time(12, 30, 15, 250_000)
_LOCAL = datetime.datetime.combine(_DAY, _TIME)
_ZONED = _LOCAL.replace(tzinfo=datetime.UTC)
_ITEM = Item(uuid.UUID(int=5), Decimal("1.50"), {"x"}, Grade.BAD, [])
_ORDER = Order(
    "o1",
    7,
    _ZONED,
    datetime.timedelta(days=2, seconds=3),
    (dataclasses.replace(_ITEM, parts=[_ITEM]),),
    Colour.GREEN,
    "b",
    Tagged("t"),
    {"large": Size(3, 4.5)},
)
_MINIMAL = Order("o2", -7, _LOCAL, datetime.timedelta())

#: by name: the declared type, and values of it
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (Types.BOOLEAN(), [True, False]),
    "byte": (Types.BYTE(), [-128, 127]),
    "short": (Types.SHORT(), [-32768, 32767]),
    "int": (Types.INT(), [-(1 << 31), (1 << 31) - 1]),
    "long": (Types.LONG(), [-(1 << 63), (1 << 63) - 1]),
    "big int": (Types.BIG_INT(), [7, -(1 << 100)]),
    "float": (Types.FLOAT(), [0.5, float("inf")]),
    "double": (Types.DOUBLE(), [0.1, -0.0]),
    "big decimal": (Types.BIG_DEC(), [Decimal("1.10"), Decimal("-1E+9")]),
    "string": (Types.STRING(), ["", "№ 1"]),
    "char": (Types.CHAR(), ["x"]),
    "bytes": (bytes, [b"", b"\x00\xff"]),
    "date": (Types.SQL_DATE(), [_DAY]),
    "time": (Types.SQL_TIME(), [_TIME]),
    "timestamp": (Types.SQL_TIMESTAMP(), [_LOCAL, _ZONED]),
    "local date": (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE), [_DAY]),
    "local time": (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_TIME), [_TIME]),
    "local datetime": (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME), [_LOCAL]),
    "instant": (Types.INSTANT(), [Instant(-1, 999_999_999)]),
    "primitive array": (Types.PRIMITIVE_ARRAY(Types.INT()), [[1, 2]]),
    "basic array": (Types.BASIC_ARRAY(Types.STRING()), [["a", None]]),
    "object array": (Types.OBJECT_ARRAY(Types.TUPLE([int])), [[(1,), None]]),
    "list": (Types.LIST(Types.LONG()), [[], [1, None]]),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), [{}, {"a": 1, "b": None}]),
    "map of tuples": (dict[tuple[int, str], list[Size]], [{(1, "a"): [Size(1)]}]),
    "tuple": (Types.TUPLE([Types.LONG(), Types.STRING()]), [(1, None)]),
    "row": (Types.ROW([Types.LONG(), Types.STRING()]), [Row(f0=1, f1="a")]),
    "named row": (Types.ROW_NAMED(["n", "t"], [Types.INT(), Types.STRING()]), [Row(n=1, t="a")]),
    "enum": (Colour, [Colour.RED, Colour.GREEN]),
    "int enum": (Grade, [Grade.BAD]),
    "named tuple": (Size, [Size(1, 2.5), Size(3)]),
    "struct": (Tagged, [Tagged("t")]),
    "struct as array": (Listed, [Listed(1), Listed(2, "b")]),
    "dataclass": (Order, [_ORDER, _MINIMAL]),
    "dataclass within": (list[tuple[Item, int]], [[(_ITEM, 1)]]),
    "serializer": (TextSerializer(), ["text"]),
    "pickled": (Types.PICKLED_BYTE_ARRAY(), [frozenset({1, "a"})]),
    "undeclared": (None, [1, 2.5, "a", b"b", True]),
    "undeclared tuples": (None, [(1, "a"), (2.5, None)]),
    "undeclared objects": (None, [{1, 2}, Decimal(1)]),
}


class MoreColours(Enum):
    BLUE = "blue"
    GREEN = "green"
    CRIMSON = "red"


class Box(NamedTuple):
    name: str = "box"
    height: float = 1.0
    depth: int = 2
    width: float = 3.0


class Named(msgspec.Struct):
    name: str | None
    number: int = 4


@dataclasses.dataclass
class NewItem:
    price: Decimal
    grade: Grade
    parts: list[NewItem]
    tags: list[str]
    weight: float = 1.5


@dataclasses.dataclass
class NewOrder:
    colour: MoreColours | None
    amount: float
    items: list[NewItem]
    sizes: dict[str, Box]
    currency: str = "EUR"
    history: list[int] = dataclasses.field(default_factory=list)


def _new_order(amount: float, colour: MoreColours | None, items: list[Any], sizes: Any) -> NewOrder:
    return NewOrder(colour, amount, items, sizes)


_NEW_ITEM = NewItem(Decimal("1.50"), Grade.BAD, [], ["x"])
_ROW = Types.ROW_NAMED(["t", "new", "n"], [Types.STRING(), Types.DOUBLE(), Types.LONG()])

#: by name: a type of a later job, and the values as it reads them
EVOLVED: dict[str, tuple[Any, list[Any]]] = {
    "byte": (Types.SHORT(), [-128, 127]),
    "short": (Types.FLOAT(), [-32768.0, 32767.0]),
    "int": (Types.DOUBLE(), [-2147483648.0, 2147483647.0]),
    "long": (Types.BIG_DEC(), [Decimal(-(1 << 63)), Decimal((1 << 63) - 1)]),
    "big int": (Types.BIG_DEC(), [Decimal(7), Decimal(-(1 << 100))]),
    "float": (Types.DOUBLE(), [0.5, float("inf")]),
    "char": (Types.STRING(), ["x"]),
    "local datetime": (Types.SQL_TIMESTAMP(), [_LOCAL]),
    "primitive array": (Types.LIST(Types.LONG()), [[1, 2]]),
    "list": (Types.LIST(Types.DOUBLE()), [[], [1.0, None]]),
    "map": (Types.MAP(Types.STRING(), Types.DOUBLE()), [{}, {"a": 1.0, "b": None}]),
    "map of tuples": (dict[tuple[int, str], list[Box]], [{(1, "a"): [Box("box", 0.5, 2, 1.0)]}]),
    "tuple": (Types.TUPLE([Types.DOUBLE(), Types.STRING()]), [(1.0, None)]),
    "named row": (_ROW, [Row(t="a", new=None, n=1)]),
    "enum": (MoreColours, [MoreColours.CRIMSON, MoreColours.GREEN]),
    "named tuple": (Box, [Box("box", 2.5, 2, 1.0), Box("box", 0.5, 2, 3.0)]),
    "struct": (Named, [Named("t")]),
    "dataclass": (
        NewOrder,
        [
            _new_order(
                7.0,
                MoreColours.GREEN,
                [dataclasses.replace(_NEW_ITEM, parts=[_NEW_ITEM])],
                {"large": Box("box", 4.5, 2, 3.0)},
            ),
            _new_order(-7.0, None, [], {}),
        ],
    ),
    "dataclass within": (list[tuple[NewItem, float]], [[(_NEW_ITEM, 1.0)]]),
    "serializer": (NewTextSerializer(), ["was text"]),
    "pickled": (None, [frozenset({1, "a"})]),
    "undeclared tuples": (tuple[float, str], [(1.0, "a"), (2.5, None)]),
}


def write_types() -> bytes:
    """Return a state file with all of `TYPES`."""
    storage, backend, keys = MemoryStateStorage(), _backend(), KeyContext()
    for name, (declared, values) in TYPES.items():
        state: Any = backend.keyed_state(OPERATOR, _descriptor(name, declared), keys)
        for keys.key, value in enumerate(values):
            state.update(value)
    head = backend.persist(storage, "types", 0)
    return storage.read(head.files[0].name)


class SavedTypes:
    """Such a file."""

    def __init__(self, data: bytes) -> None:
        self._storage = MemoryStateStorage()
        self._storage.write("types.state", data)
        self._ref = FileRef("types.state", len(data), -1, 0)

    def read(self, name: str, declared: Any) -> list[Any]:
        """Return the values of a state, under that type."""
        backend = _backend()
        backend.restore(self._storage, Head((self._ref,), ("types",)))
        backend.keyed_state(OPERATOR, _descriptor(name, declared), KeyContext())
        entries = {key: value for key, _, value in backend.entries(OPERATOR, name)}
        return [entries[key] for key in sorted(entries)]

    def sections(self) -> dict[str, Section]:
        """Return what there is of each state."""
        file = read_file(self._storage, self._ref.name, self._ref.size)
        return {section.state: section for section in file.sections}


def _backend() -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(range(_KEY_GROUPS), _KEY_GROUPS)


def _descriptor(name: str, declared: Any) -> ValueStateDescriptor:
    return ValueStateDescriptor(name, type_info_of(declared))
