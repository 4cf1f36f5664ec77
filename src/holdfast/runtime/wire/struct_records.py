"""Encodes records that are msgspec structs with MessagePack, in less than half of pickle's time.

MessagePack values are decoded to the annotated types of a class, whatever was in the fields. So it
is used only where nothing is lost: each value must have exactly the annotated type, and MessagePack
must preserve each type. This is checked column by column, many values at a time. Other records are
pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from holdfast.state.types.serializers import UNFIT

#: the first byte of data: structs, or pairs of a struct and a timestamp; pickles start with 0x80
STRUCTS: Final = 0x53
PAIRS: Final = 0x54

#: returns whether all values have exactly the annotated type
_Check = Callable[[Sequence[Any]], bool]

_TYPES: Final[dict[type, type]] = {
    inspect.NoneType: type(None),
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.DecimalType: Decimal,
}
_BOUNDS: Final = (
    *("gt", "ge", "lt", "le", "multiple_of"),
    *("min_length", "max_length", "pattern"),
)
_STAMPS: Final = frozenset({int, type(None)})
_NUMBER_BYTES: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode


class _Codec(NamedTuple):
    """How the records of a class are encoded.

    Attributes:
        name: the class, for the receiver.
        check: returns whether records can be restored exactly.
    """

    name: bytes
    check: _Check


def encode_structs(records: Sequence[Any]) -> bytes | None:
    """Return records, or pairs with a timestamp, as bytes; None if they must be pickled."""
    first, kind, structs = records[0], STRUCTS, records
    if type(first) is tuple and len(first) == 2 and isinstance(first[0], msgspec.Struct):
        if not _are_pairs(records):
            return None
        first, kind, structs = first[0], PAIRS, [record for record, _ in records]
    if not isinstance(first, msgspec.Struct):
        return None
    codec = _codec(type(first))
    if codec is None or not codec.check(structs):
        return None
    try:
        data = _encode(records)
    except UNFIT:
        return None
    size = len(codec.name).to_bytes(_NUMBER_BYTES, "big")
    return b"".join((bytes((kind,)), size, codec.name, data))


def decode_structs(data: bytes | memoryview) -> list[Any]:
    """Return the records that `encode_structs` has encoded."""
    begin = 1 + _NUMBER_BYTES
    end = begin + int.from_bytes(data[1:begin], "big")
    # NB: the class that has this name now; it may differ from the one of an earlier job
    return _decoder(data[0], pickle.loads(data[begin:end]))(data[end:])


@lru_cache(maxsize=256)
def _decoder(kind: int, record: Any) -> Callable[[bytes | memoryview], list[Any]]:
    shape: Any = tuple[record, int | None] if kind == PAIRS else record
    return msgspec.msgpack.Decoder(list[shape]).decode


def _are_pairs(records: Sequence[Any]) -> bool:
    return (
        {tuple}.issuperset(map(type, records))
        and {2}.issuperset(map(len, records))
        and _STAMPS.issuperset(map(type, map(itemgetter(1), records)))
    )


@lru_cache(maxsize=256)
def _codec(record: type[msgspec.Struct]) -> _Codec | None:
    try:
        check = _check_struct(inspect.type_info(record), ())
        return None if check is None else _Codec(pickle.dumps(record, 5), check)
    except Exception:
        # NB: a class that pickle or msgspec does not support, or an annotation without a meaning
        return None


def _check_of(kind: Any, around: tuple[type, ...]) -> _Check | None:
    """Return a check for values of a type; None if MessagePack may not preserve it."""
    if type(kind) in _TYPES:
        return None if _is_bounded(kind) else _exactly(_TYPES[type(kind)])
    match kind:
        case inspect.LiteralType(values=values):
            return _check_literal(values)
        case inspect.UnionType(types=types):
            return _check_union(types, around)
        case inspect.VarTupleType(item_type=item) if not _is_bounded(kind):
            return _check_items(tuple, item, around)
        case inspect.ListType(item_type=item) if not _is_bounded(kind):
            return _check_items(list, item, around)
        case inspect.DictType(key_type=inspect.StrType() as key, value_type=value):
            return None if _is_bounded(kind) else _check_dict(key, value, around)
        case inspect.StructType():
            return _check_struct(kind, around)
    return None


def _is_bounded(kind: Any) -> bool:
    """Return whether msgspec checks more than the type."""
    return any(getattr(kind, bound, None) is not None for bound in _BOUNDS)


def _exactly(*types: type) -> _Check:
    allowed = frozenset(types)
    return lambda values: allowed.issuperset(map(type, values))


def _check_literal(values: Iterable[Any]) -> _Check:
    known = frozenset(values)
    check_types = _exactly(*map(type, known))
    return lambda values: check_types(values) and known.issuperset(values)


def _check_union(kinds: Iterable[Any], around: tuple[type, ...]) -> _Check | None:
    """Return a check for a union of scalar types and at most one other type."""
    scalars = frozenset(_TYPES[type(kind)] for kind in kinds if type(kind) in _TYPES)
    others = [kind for kind in kinds if type(kind) not in _TYPES]
    if any(_is_bounded(kind) for kind in kinds if type(kind) in _TYPES) or len(others) > 1:
        return None
    if not others:
        return _exactly(*scalars)
    check = _check_of(others[0], around)
    if check is None:
        return None
    return lambda values: check([value for value in values if type(value) not in scalars])


def _check_items(container: type, item: Any, around: tuple[type, ...]) -> _Check | None:
    check_containers, check = _exactly(container), _check_of(item, around)
    if check is None:
        return None
    return lambda values: check_containers(values) and check(list(chain.from_iterable(values)))


def _check_dict(key: Any, value: Any, around: tuple[type, ...]) -> _Check | None:
    check_keys, check = _check_items(dict, key, around), _check_of(value, around)
    if check_keys is None or check is None:
        return None
    return lambda values: (
        check_keys(values) and check(list(chain.from_iterable(map(dict.values, values))))
    )


def _check_struct(kind: Any, around: tuple[type, ...]) -> _Check | None:
    record = kind.cls
    if record in around or not _is_plain(record):
        return None
    checks: list[tuple[Any, _Check]] = []
    for name, field in zip(record.__struct_fields__, kind.fields, strict=True):
        check = _check_of(field.type, (*around, record))
        if check is None:
            return None
        checks.append((attrgetter(name), check))
    exactly = _exactly(record)

    def check_all(values: Sequence[Any]) -> bool:
        return not values or (
            exactly(values) and all(check(list(map(get, values))) for get, check in checks)
        )

    return check_all


def _is_plain(record: type[msgspec.Struct]) -> bool:
    """Return whether the class has no state besides its fields, and all fields are encoded."""
    config = record.__struct_config__
    own_way = record.__reduce__ is not msgspec.Struct.__reduce__
    return not (config.omit_defaults or config.dict or own_way)
