"""The Python types that msgspec can write as MessagePack and read back without loss."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Flag
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

_RECORDS: Final = (
    inspect.DataclassType,
    inspect.NamedTupleType,
    inspect.StructType,
    inspect.TypedDictType,
)
#: Any and the abstract collections are excluded: they would read tuples back as lists.
_LOSSLESS: Final = (
    *_RECORDS,
    inspect.BoolType,
    inspect.ByteArrayType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.DecimalType,
    inspect.DictType,
    inspect.EnumType,
    inspect.FloatType,
    inspect.FrozenSetType,
    inspect.IntType,
    inspect.ListType,
    inspect.LiteralType,
    inspect.NoneType,
    inspect.SetType,
    inspect.StrType,
    inspect.TimeDeltaType,
    inspect.TimeType,
    inspect.TupleType,
    inspect.UnionType,
    inspect.UUIDType,
    inspect.VarTupleType,
)


@lru_cache(maxsize=1024)
def is_msgpack_class(cls: type) -> bool:
    """Return whether msgspec can write instances of the class and read them back without loss."""
    try:
        msgspec.msgpack.Decoder(cls)
        return all(map(_is_lossless, _types_within(inspect.type_info(cls), set())))
    except (TypeError, NameError):
        return False


def is_written_as_map(annotation: Any) -> bool:
    """Return whether values of a type are maps in MessagePack, or contain maps.

    Such a value cannot be the key of a map for a reader that does not know its class.
    """
    return _has_maps(inspect.type_info(annotation))


def _has_maps(node: inspect.Type) -> bool:
    maps = (*_RECORDS, inspect.DictType)
    return any(
        isinstance(inner, maps)
        and not isinstance(inner, inspect.NamedTupleType)
        and not getattr(inner, "array_like", False)
        for inner in _types_within(node, set())
    )


def _types_within(node: Any, seen: set[int]) -> Iterator[inspect.Type]:
    """Yield a type of `msgspec.inspect` and all the types inside it, each once."""
    if isinstance(node, tuple):
        for part in node:
            yield from _types_within(part, seen)
    elif isinstance(node, inspect.Type | inspect.Field) and id(node) not in seen:
        seen.add(id(node))
        if isinstance(node, inspect.Type):
            yield node
        for name in node.__struct_fields__:
            yield from _types_within(getattr(node, name), seen)


def _is_lossless(node: inspect.Type) -> bool:
    if isinstance(node, inspect.EnumType):
        return not issubclass(node.cls, Flag)  # msgspec does not support combined flags
    if isinstance(node, inspect.DataclassType | inspect.StructType):
        # Such a method would run again on a value that it has already changed.
        return not any(hasattr(node.cls, m) for m in ("__post_init__", "__attrs_post_init__"))
    if isinstance(node, inspect.DictType):
        return not _has_maps(node.key_type)
    return isinstance(node, _LOSSLESS)
