"""Type information of arrays, lists and maps."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.common._msgpack import is_written_as_map
from holdfast.common._type_infos.base import (
    Mismatch,
    Scope,
    TypeInformation,
    optional,
    same,
    wrong_type,
)
from holdfast.common._type_infos.basic import BasicType, BasicTypeInfo
from holdfast.common.types import Row

_Function = Callable[[Any], Any]

_BYTE: Final = BasicTypeInfo(BasicType.BYTE)
_PRIMITIVE: Final = frozenset(
    BasicTypeInfo(t)
    for t in (
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.CHAR,
    )
)
_BOXED: Final = _PRIMITIVE | {BasicTypeInfo(BasicType.STRING)}


class _Elements(TypeInformation):
    """Base of arrays and lists: a Python list of elements of one type."""

    @property
    def element_type(self) -> TypeInformation:
        """Return the type of the elements."""
        raise NotImplementedError

    def shape(self, value: Any) -> Any:
        if value is None:
            return None
        if not _is_list_like(value):
            raise wrong_type(self, value)
        return _shape_all(value, self._shape_element)

    def msgpack_type(self) -> Any | None:
        element = self.element_type.msgpack_type()
        return None if element is None else types.GenericAlias(list, (optional(element),))

    def to_msgpack(self) -> _Function | None:
        return _over_list(self.element_type.to_msgpack())

    def from_msgpack(self) -> _Function | None:
        return _over_list(self.element_type.from_msgpack())

    def _shape_element(self, value: Any) -> Any:
        return self.element_type.shape(value)

    def _test(self, value: str, scope: Scope) -> str:
        x = scope.variable()
        test = self.element_type.test(x, scope)
        each = "" if test == "True" else f" and all([{test} for {x} in {value}])"
        return f"type({value}) is list{each}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.element_type!r}>"


@dataclass(frozen=True, repr=False)
class PrimitiveArrayTypeInfo(_Elements):
    """Type information of arrays of numbers without None; an array of BYTE is `bytes`."""

    _element_type: TypeInformation

    def __post_init__(self) -> None:
        _check_element("a primitive array", self._element_type, _PRIMITIVE)

    @property
    def element_type(self) -> TypeInformation:
        return self._element_type

    def shape(self, value: Any) -> Any:
        if value is None or self._element_type != _BYTE:
            return super().shape(value)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong_type(self, value, "an array of bytes is a Python bytes")
        return value if type(value) is bytes else bytes(value)

    def msgpack_type(self) -> Any:
        """Return bytes, or the list that msgspec decodes."""
        if self._element_type == _BYTE:
            return bytes
        return types.GenericAlias(list, (self._element_type.msgpack_type(),))

    def _shape_element(self, value: Any) -> Any:
        if value is None:
            raise wrong_type(self._element_type, value, "a primitive array holds no None")
        return self._element_type.shape(value)

    def _test(self, value: str, scope: Scope) -> str:
        if self._element_type == _BYTE:
            return f"type({value}) is bytes"
        return f"{super()._test(value, scope)} and None not in {value}"

    def __repr__(self) -> str:
        return super().__repr__()


@dataclass(frozen=True, repr=False)
class BasicArrayTypeInfo(_Elements):
    """Type information of arrays of single values."""

    _element_type: TypeInformation

    def __post_init__(self) -> None:
        _check_element("a basic array", self._element_type, _BOXED)

    @property
    def element_type(self) -> TypeInformation:
        return self._element_type


@dataclass(frozen=True, repr=False)
class ObjectArrayTypeInfo(_Elements):
    """Type information of arrays of any type."""

    _element_type: TypeInformation

    @property
    def element_type(self) -> TypeInformation:
        return self._element_type


@dataclass(frozen=True, repr=False)
class ListTypeInfo(_Elements):
    """Type information of lists."""

    elem_type: TypeInformation

    @property
    def element_type(self) -> TypeInformation:
        return self.elem_type


@dataclass(frozen=True, repr=False)
class MapTypeInfo(TypeInformation):
    """Type information of dicts; a key must not be None."""

    _key_type_info: TypeInformation
    _value_type_info: TypeInformation

    @property
    def key_type(self) -> TypeInformation:
        """Return the type of the keys."""
        return self._key_type_info

    @property
    def value_type(self) -> TypeInformation:
        """Return the type of the values."""
        return self._value_type_info

    def shape(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise wrong_type(self, value)
        return {self._shape_key(k): self._shape_value(k, v) for k, v in value.items()}

    def msgpack_type(self) -> Any | None:
        """Return the dict type that msgspec decodes, if keys and values can be written.

        A key that is itself written as a map can only be read with its class, so it is pickled.
        """
        key, value = self._key_type_info.msgpack_type(), self._value_type_info.msgpack_type()
        if key is None or value is None or is_written_as_map(key):
            return None
        return types.GenericAlias(dict, (key, optional(value)))

    def to_msgpack(self) -> _Function | None:
        return _over_dict(self._key_type_info.to_msgpack(), self._value_type_info.to_msgpack())

    def from_msgpack(self) -> _Function | None:
        return _over_dict(self._key_type_info.from_msgpack(), self._value_type_info.from_msgpack())

    def _shape_key(self, key: Any) -> Any:
        try:
            if key is None:
                raise wrong_type(self._key_type_info, key, "a key must not be None")
            return self._key_type_info.shape(key)
        except Mismatch as mismatch:
            raise mismatch.inside(f"'s key {key!r}") from None

    def _shape_value(self, key: Any, value: Any) -> Any:
        try:
            return self._value_type_info.shape(value)
        except Mismatch as mismatch:
            raise mismatch.inside(f"[{key!r}]") from None

    def _test(self, value: str, scope: Scope) -> str:
        k, v = scope.variable(), scope.variable()
        key_test = self._key_type_info.test(k, scope)
        value_test = self._value_type_info.test(v, scope)
        each = f"all([{key_test} and {value_test} for {k}, {v} in {value}.items()])"
        return f"type({value}) is dict and None not in {value} and {each}"

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self._key_type_info!r}, {self._value_type_info!r}>"


def _over_list(convert: _Function | None) -> _Function | None:
    if convert is None:
        return None
    each = convert
    return lambda value: None if value is None else [each(v) for v in value]


def _over_dict(key: _Function | None, value: _Function | None) -> _Function | None:
    if key is None and value is None:
        return None
    of_key, of_value = key or same, value or same
    return lambda d: None if d is None else {of_key(k): of_value(v) for k, v in d.items()}


def _shape_all(values: Iterable[Any], shape: _Function) -> list[Any]:
    shaped: list[Any] = []
    try:
        for value in values:
            shaped.append(shape(value))
    except Mismatch as mismatch:
        raise mismatch.inside(f"[{len(shaped)}]") from None
    return shaped


def _check_element(what: str, element: TypeInformation, allowed: frozenset[BasicTypeInfo]) -> None:
    if element not in allowed:
        names = ", ".join(sorted(map(repr, allowed)))
        message = f"{what} can hold {names}; got {element!r}; use Types.OBJECT_ARRAY or Types.LIST"
        raise TypeError(message)


def _is_list_like(value: Any) -> bool:
    if isinstance(value, str | bytes | bytearray | Mapping | Row):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__iter__")
