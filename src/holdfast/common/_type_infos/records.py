"""Type information of tuples and rows."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import msgspec

from holdfast.common._type_infos.base import (
    Mismatch,
    Scope,
    TypeInformation,
    optional,
    same,
    wrong_type,
)
from holdfast.common.types import FieldIndex, Row, RowKind, field_index, make_row

_Function = Callable[[Any], Any]


@dataclass(frozen=True, repr=False, init=False)
class TupleTypeInfo(TypeInformation):
    """Type information of tuples; a list or a row with as many fields is converted to a tuple."""

    _field_types: tuple[TypeInformation, ...]

    def __init__(self, field_types: Iterable[TypeInformation]) -> None:
        object.__setattr__(self, "_field_types", tuple(field_types))

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields."""
        return list(self._field_types)

    def shape(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, tuple | list | Row):
            raise wrong_type(self, value)
        _check_arity(self, value, len(self._field_types))
        return tuple(_shape_fields(self._field_types, value, "[{}]".format))

    def coercer(self) -> _Function:
        scope = Scope()
        fits = scope.compile("v", _fields_test(self._field_types, "v", scope))
        return _tuple_coercer(fits, _field_builder(self._field_types), self.coerce)

    def msgpack_type(self) -> Any | None:
        """Return the tuple that msgspec decodes, if all fields can be written."""
        fields = _optional_types(self._field_types)
        return None if fields is None else types.GenericAlias(tuple, fields)

    def to_msgpack(self) -> _Function | None:
        return _over_tuple([t.to_msgpack() for t in self._field_types])

    def from_msgpack(self) -> _Function | None:
        return _over_tuple([t.from_msgpack() for t in self._field_types])

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        """Return a tuple of the fields' internal values."""
        if obj is None:
            return None
        if not isinstance(obj, tuple | list | Row):
            message = f"Unexpected tuple {obj!r} with TupleTypeInfo"
            raise ValueError(message)
        return _to_internal(self._field_types, obj)

    def from_internal_type(self, obj: Any) -> Any:
        """Return the tuple from the result of `to_internal_type`."""
        return None if obj is None else _from_internal(self._field_types, obj)

    def _test(self, value: str, scope: Scope) -> str:
        return f"type({value}) is tuple and {_fields_test(self._field_types, value, scope)}"

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(repr, self._field_types))})"


@dataclass(frozen=True, repr=False, init=False)
class RowTypeInfo(TypeInformation):
    """Type information of rows; fields without a name are called f0, f1, and so on.

    A tuple or list becomes a row by position; a dict or an object by the names of its entries or
    attributes; a row with names by name, unless the type was declared without names.
    """

    _field_types: tuple[TypeInformation, ...]
    _field_names: tuple[str, ...]
    _named: bool

    def __init__(
        self,
        field_types: Iterable[TypeInformation],
        field_names: Sequence[str] | None = None,
    ) -> None:
        field_types = tuple(field_types)
        names = [f"f{i}" for i in range(len(field_types))] if field_names is None else field_names
        if len(names) != len(field_types):
            message = (
                f"a row type needs a name for each type; got {len(names)} names {list(names)} "
                f"and {len(field_types)} types"
            )
            raise ValueError(message)
        field_index(tuple(names))  # names must differ
        object.__setattr__(self, "_field_types", field_types)
        object.__setattr__(self, "_field_names", tuple(names))
        object.__setattr__(self, "_named", field_names is not None)

    def get_field_names(self) -> list[str]:
        """Return the names of the fields."""
        return list(self._field_names)

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields."""
        return list(self._field_types)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of the named field; -1 if the type was declared without names."""
        return self._field_names.index(field_name) if self._named else -1

    def shape(self, value: Any) -> Any:
        if value is None:
            return None
        values = self._values(value)
        fields = _shape_fields(self._field_types, values, self._by_name)
        kind = value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT
        return make_row(fields, self._index(), kind)

    def coercer(self) -> _Function:
        scope = Scope()
        fits = scope.compile("v", _fields_test(self._field_types, "v", scope))
        build = _field_builder(self._field_types)
        return _row_coercer(fits, build, self._index(), self.coerce)

    def msgpack_type(self) -> Any | None:
        """Return the tuple that msgspec decodes: the kind of the row, then its fields."""
        fields = _optional_types(self._field_types)
        return None if fields is None else types.GenericAlias(tuple, (int, *fields))

    def to_msgpack(self) -> _Function:
        """Return the function from a row to the tuple of its kind and its fields."""
        return _row_to_msgpack(_over_tuple([t.to_msgpack() for t in self._field_types]))

    def from_msgpack(self) -> _Function:
        """Return the function from the tuple of kind and fields to the row."""
        convert = _over_tuple([t.from_msgpack() for t in self._field_types])
        return _row_from_msgpack(convert, self._index())

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        """Return a tuple of the number of the row's kind and the fields' internal values."""
        if obj is None:
            return None
        try:
            values = self._values(obj)
        except Mismatch as mismatch:
            message = f"Unexpected tuple {obj!r} with RowTypeInfo: {mismatch.problem}"
            raise ValueError(message) from None
        kind = obj.get_row_kind() if isinstance(obj, Row) else RowKind.INSERT
        return (kind.value, *_to_internal(self._field_types, values))

    def from_internal_type(self, obj: Any) -> Any:
        """Return the row from the result of `to_internal_type`."""
        if obj is None:
            return None
        kind, *values = obj
        fields = list(_from_internal(self._field_types, values))
        return make_row(fields, self._index(), RowKind(kind))

    def _index(self) -> FieldIndex:
        return field_index(self._field_names)

    def _by_name(self, position: int) -> str:
        return f".{self._field_names[position]}"

    def _values(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Row) and value._index is not None and self._named:
            return self._row_values(value)
        if isinstance(value, Row | tuple | list):
            _check_arity(self, value, len(self._field_types))
            return value._values if isinstance(value, Row) else value
        if isinstance(value, Mapping):
            return [value.get(name) for name in self._field_names]
        return self._attributes(value)

    def _row_values(self, row: Row) -> Sequence[Any]:
        missing = [name for name in self._field_names if name not in row]
        if missing:
            raise wrong_type(self, row, f"it has no {', '.join(missing)}")
        return row.get_fields_by_names(self._field_names)

    def _attributes(self, value: Any) -> Sequence[Any]:
        if not (
            hasattr(value, "__dict__") or is_dataclass(value) or isinstance(value, msgspec.Struct)
        ):
            raise wrong_type(self, value)
        missing = [name for name in self._field_names if not hasattr(value, name)]
        if missing:
            raise wrong_type(self, value, f"it has no {', '.join(missing)}")
        return [getattr(value, name) for name in self._field_names]

    def _test(self, value: str, scope: Scope) -> str:
        row, index = scope.bind(Row), scope.bind(self._index())
        fields = _fields_test(self._field_types, f"{value}._values", scope)
        return f"type({value}) is {row} and {value}._index is {index} and {fields}"

    def __repr__(self) -> str:
        pairs = zip(self._field_names, self._field_types, strict=True)
        fields = [f"{name}: {t!r}" if self._named else repr(t) for name, t in pairs]
        return f"RowTypeInfo({', '.join(fields)})"


def _tuple_coercer(fits: _Function, build: _Function, slow: _Function) -> _Function:
    def coerce(value: Any) -> Any:
        cls = type(value)
        if cls is tuple and fits(value):
            return value
        if cls is tuple or cls is list:
            fields = build(value)
            if fields is not None:
                return tuple(fields)
        return slow(value)

    return coerce


def _row_coercer(
    fits: _Function, build: _Function, index: FieldIndex, slow: _Function
) -> _Function:
    def coerce(value: Any) -> Any:
        cls = type(value)
        if cls is tuple:
            fields = build(value)
            return slow(value) if fields is None else make_row(fields, index)
        if cls is Row:
            if value._index is index and fits(value._values):
                return value
            if value._index is None or value._index is index:
                fields = build(value._values)
                if fields is not None:
                    return make_row(fields, index, value._row_kind)
        return slow(value)

    return coerce


def _field_builder(field_types: Sequence[TypeInformation]) -> _Function:
    """Return a function that converts field values, and returns None if one does not fit."""
    scope = Scope()
    fields = ", ".join(_field(t, f"v[{i}]", scope) for i, t in enumerate(field_types))
    build = scope.compile("v", f"[{fields}] if len(v) == {len(field_types)} else None")

    def build_or_none(values: Any) -> Any:
        try:
            return build(values)
        except Mismatch:
            return None  # the slow way reports which part is wrong

    return build_or_none


def _field(field_type: TypeInformation, value: str, scope: Scope) -> str:
    test = field_type.test(value, scope)
    if test == "True":
        return value
    return f"{value} if {test} else {scope.bind(field_type.shape)}({value})"


def _row_to_msgpack(convert: _Function | None) -> _Function:
    def encode(row: Row | None) -> tuple[Any, ...] | None:
        if row is None:
            return None
        values = row._values if convert is None else convert(row._values)
        return (row._row_kind.value, *values)

    return encode


def _row_from_msgpack(convert: _Function | None, index: FieldIndex) -> _Function:
    def decode(fields: tuple[Any, ...] | None) -> Row | None:
        if fields is None:
            return None
        values = fields[1:] if convert is None else convert(fields[1:])
        return make_row([*values], index, RowKind(fields[0]))

    return decode


def _over_tuple(converters: list[_Function | None]) -> _Function | None:
    if not any(converters):
        return None
    each = [c or same for c in converters]
    return lambda t: None if t is None else tuple([c(v) for c, v in zip(each, t, strict=True)])


def _fields_test(field_types: Sequence[TypeInformation], value: str, scope: Scope) -> str:
    tests = [t.test(f"{value}[{i}]", scope) for i, t in enumerate(field_types)]
    return " and ".join([f"len({value}) == {len(field_types)}", *(t for t in tests if t != "True")])


def _shape_fields(
    field_types: Sequence[TypeInformation], values: Iterable[Any], step: Callable[[int], str]
) -> list[Any]:
    shaped: list[Any] = []
    try:
        for field_type, value in zip(field_types, values, strict=True):
            shaped.append(field_type.shape(value))
    except Mismatch as mismatch:
        raise mismatch.inside(step(len(shaped))) from None
    return shaped


def _check_arity(declared: TypeInformation, value: Any, arity: int) -> None:
    if len(value) != arity:
        raise wrong_type(declared, value, f"expected {arity} fields, got {len(value)}")


def _optional_types(field_types: Sequence[TypeInformation]) -> tuple[Any, ...] | None:
    fields = [t.msgpack_type() for t in field_types]
    return None if None in fields else tuple(optional(f) for f in fields)


def _to_internal(field_types: Sequence[TypeInformation], values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(t.to_internal_type(v) for t, v in zip(field_types, values, strict=True))


def _from_internal(
    field_types: Sequence[TypeInformation], values: Iterable[Any]
) -> tuple[Any, ...]:
    return tuple(t.from_internal_type(v) for t, v in zip(field_types, values, strict=True))
