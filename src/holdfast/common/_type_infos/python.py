"""Type information from Python's own types and from serializers: `type_info_of`."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from io import BytesIO
from typing import Any, Final

import msgspec

from holdfast.common._msgpack import is_msgpack_class
from holdfast.common._type_infos.base import Scope, TypeInformation, wrong_type
from holdfast.common._type_infos.basic import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
)
from holdfast.common._type_infos.collections import (
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
)
from holdfast.common._type_infos.records import (
    TupleTypeInfo,
)
from holdfast.common._type_infos.time import (
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from holdfast.common.serializer import TypeSerializer
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

    Values must be instances of the class. If MessagePack can represent the class, they must be
    instances of this very class and not of a subclass, which would be restored as its base.
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
        """Return the class if msgspec can write and read it without loss."""
        return self.cls if is_msgpack_class(self.cls) else None

    def _test(self, value: str, scope: Scope) -> str:
        return f"type({value}) is {scope.bind(self.cls)}"

    def __repr__(self) -> str:
        return f"PythonTypeInfo<{self.cls.__qualname__}>"


@dataclass(frozen=True, repr=False)
class SerializerTypeInfo(TypeInformation):
    """Type information of the values of a custom serializer; nothing is checked.

    A value is written as the version of the serializer and its bytes.
    """

    serializer: TypeSerializer[Any]

    def coercer(self) -> None:
        """Return None: there is nothing to do."""
        return None

    def test(self, value: str, scope: Scope) -> str:
        return "True"

    def msgpack_type(self) -> Any:
        """Return the pair that msgspec decodes."""
        return tuple[int, bytes]

    def to_msgpack(self) -> Callable[[Any], Any]:
        """Return the function from a value to the version and its bytes."""
        serialize, version = self.serializer.serialize, self.serializer.version

        def encode(value: Any) -> tuple[int, bytes] | None:
            if value is None:
                return None
            stream = BytesIO()
            serialize(value, stream)
            return version, stream.getvalue()

        return encode

    def from_msgpack(self) -> Callable[[Any], Any]:
        """Return the function from the version and the bytes to the value."""
        serializer = self.serializer
        own = serializer.reader(serializer.version) or serializer.deserialize

        def decode(pair: tuple[int, bytes] | None) -> Any:
            if pair is None:
                return None
            version, data = pair
            read = own if version == serializer.version else serializer.reader(version)
            if read is None:
                message = f"{serializer!r} does not read values that its version {version} wrote"
                raise ValueError(message)
            return read(BytesIO(data))

        return decode

    def __repr__(self) -> str:
        return f"SerializerTypeInfo<{self.serializer!r}>"


@typing.overload
def type_info_of(obj: None) -> None: ...
@typing.overload
def type_info_of(obj: object) -> TypeInformation: ...
def type_info_of(obj: Any) -> TypeInformation | None:
    """Return the type information for type information, a Python type, or None.

    `int` is 64 bits (`Types.LONG()`), `float` is `Types.DOUBLE()`, `bytes` is
    `Types.PRIMITIVE_ARRAY(Types.BYTE())`; ``tuple[int, str]``, ``list[int]`` and ``dict[str, int]``
    are TUPLE, LIST and MAP; `Any` and `object` are pickled; a dataclass, NamedTuple, msgspec Struct
    or Enum is a `PythonTypeInfo`; a `TypeSerializer` is a `SerializerTypeInfo`. ``X | None`` is
    ``X``, since None fits every type.
    """
    if obj is None or isinstance(obj, TypeInformation):
        return obj
    if isinstance(obj, TypeSerializer):
        return SerializerTypeInfo(obj)
    origin = typing.get_origin(obj)
    if origin is not None:
        return _of_generic(obj, origin, typing.get_args(obj))
    known = _PYTHON.get(obj) if _is_hashable(obj) else None
    if known is not None:
        return known
    if isinstance(obj, type) and _has_fields(obj):
        return PythonTypeInfo(obj)
    raise _no_type(obj)


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
        remedy = f"add the types of its items, as in list[int], or {remedy}"
    return TypeError(
        "a type is a TypeInformation, a Python type such as int or tuple[int, str], or a "
        f"dataclass, NamedTuple, msgspec.Struct or Enum; got {obj!r}; {remedy}"
    )


def _has_fields(cls: type) -> bool:
    named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return dataclasses.is_dataclass(cls) or named_tuple or issubclass(cls, msgspec.Struct | Enum)


def _is_hashable(obj: Any) -> bool:
    return getattr(type(obj), "__hash__", None) is not None
