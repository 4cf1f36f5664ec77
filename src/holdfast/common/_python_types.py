"""Type information from Python's own types: `type_info_of` and `PythonTypeInfo`."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from holdfast.common._basic_types import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
)
from holdfast.common._collection_types import (
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
)
from holdfast.common._record_types import (
    TupleTypeInfo,
)
from holdfast.common._time_types import (
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from holdfast.common._type_base import Scope, TypeInformation, wrong_type
from holdfast.common.time import Instant

_BYTES: Final = PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE))
_PYTHON: Final[dict[Any, TypeInformation]] = {
    int: BasicTypeInfo(BasicType.LONG),
    str: BasicTypeInfo(BasicType.STRING),
    float: BasicTypeInfo(BasicType.DOUBLE),
    bool: BasicTypeInfo(BasicType.BOOLEAN),
    bytes: _BYTES,
    Decimal: BasicTypeInfo(BasicType.BIG_DEC),
    Instant: BasicTypeInfo(BasicType.INSTANT),
    datetime.date: DateTypeInfo(),
    datetime.time: TimeTypeInfo(),
    datetime.datetime: TimestampTypeInfo(),
    object: PickledBytesTypeInfo(),
    Any: PickledBytesTypeInfo(),
}


@dataclass(frozen=True, repr=False)
class PythonTypeInfo(TypeInformation):
    """Type information of a class with fields: dataclass, NamedTuple, msgspec Struct, or Enum.

    Values must be instances of the class. Where MessagePack can hold the class, they must be
    instances of this very class and not of a subclass, which would come back as its base.
    """

    cls: type

    def shape(self, value: Any) -> Any:
        """Return the value, or raise a `Mismatch` if it is not of the class."""
        if value is None or type(value) is self.cls:
            return value
        if not isinstance(value, self.cls):
            raise wrong_type(self, value)
        if not issubclass(self.cls, Enum) and self.msgpack_type() is not None:
            hint = f"a subclass would be restored as {self.cls.__name__}; declare it by itself"
            raise wrong_type(self, value, hint)
        return value

    def msgpack_type(self) -> Any | None:
        """Return the class, if msgspec writes and reads it without loss."""
        return self.cls if is_msgpack_class(self.cls) else None

    def _test(self, value: str, scope: Scope) -> str:
        return f"type({value}) is {scope.bind(self.cls)}"

    def __repr__(self) -> str:
        return f"PythonTypeInfo<{self.cls.__qualname__}>"


@typing.overload
def type_info_of(obj: None) -> None: ...
@typing.overload
def type_info_of(obj: object) -> TypeInformation: ...
def type_info_of(obj: Any) -> TypeInformation | None:
    """Return the type information for type information, a Python type, or None.

    `int` is 64 bits (`Types.LONG()`), `float` is `Types.DOUBLE()`, `bytes` is
    `Types.PRIMITIVE_ARRAY(Types.BYTE())`; ``tuple[int, str]``, ``list[int]`` and ``dict[str, int]``
    are TUPLE, LIST and MAP; `Any` and `object` are pickled; a dataclass, NamedTuple, msgspec Struct
    or Enum is a `PythonTypeInfo`. ``X | None`` is ``X``, since None fits every type.
    """
    if obj is None or isinstance(obj, TypeInformation):
        return obj
    origin = typing.get_origin(obj)
    if origin is not None:
        return _of_generic(obj, origin, typing.get_args(obj))
    known = _PYTHON.get(obj) if _is_hashable(obj) else None
    if known is not None:
        return known
    if isinstance(obj, type) and _has_fields(obj):
        return PythonTypeInfo(obj)
    raise _no_type(obj)


@lru_cache(maxsize=1024)
def is_msgpack_class(cls: type) -> bool:
    """Return whether msgspec writes instances of the class and reads them back the same."""
    try:
        msgspec.msgpack.Decoder(cls)
        return all(_is_lossless(t) for t in _types_within(inspect.type_info(cls), set()))
    except (TypeError, NameError):
        return False


def _of_generic(obj: Any, origin: Any, args: tuple[Any, ...]) -> TypeInformation:
    if origin is typing.Annotated:
        return _inner(args[0])
    if origin in (typing.Union, types.UnionType):
        return _of_union(obj, [a for a in args if a is not types.NoneType])
    if origin is list:
        return ListTypeInfo(_inner(args[0]))
    if origin is dict:
        return MapTypeInfo(_inner(args[0]), _inner(args[1]))
    if origin is tuple and Ellipsis not in args:
        return TupleTypeInfo(_inner(a) for a in args)
    raise _no_type(obj)


def _inner(annotation: object) -> TypeInformation:
    return type_info_of(annotation)


def _of_union(obj: Any, alternatives: list[Any]) -> TypeInformation:
    if len(alternatives) != 1:
        raise _no_type(obj)
    return _inner(alternatives[0])


def _no_type(obj: Any) -> TypeError:
    remedy = "use Types.PICKLED_BYTE_ARRAY() to pickle it"
    if obj in (list, dict, tuple):
        remedy = f"say of what, as in list[int], or {remedy}"
    return TypeError(
        "a type is a TypeInformation, a Python type such as int or tuple[int, str], or a "
        f"dataclass, NamedTuple, msgspec.Struct or Enum; got {obj!r}; {remedy}"
    )


def _has_fields(cls: type) -> bool:
    named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return dataclasses.is_dataclass(cls) or named_tuple or issubclass(cls, msgspec.Struct | Enum)


def _is_hashable(obj: Any) -> bool:
    return getattr(type(obj), "__hash__", None) is not None


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
        return not issubclass(node.cls, Flag)  # msgspec knows no combined flags
    if isinstance(node, inspect.DataclassType | inspect.StructType):
        # It would run again on a value that it has already changed.
        return not any(hasattr(node.cls, m) for m in ("__post_init__", "__attrs_post_init__"))
    # What is declared as Any would read tuples back as lists.
    return not isinstance(
        node, inspect.AnyType | inspect.CustomType | inspect.RawType | inspect.ExtType
    )
