"""Keys of declared types whose values are not hashable: lists, and types that contain lists.

State is looked up by its key in a dict, and a list is not hashable. So where the declared type is a
list, a tuple is stored: in memory, for key groups, and in files. Functions get a new list each
time. A key without a declared type is stored unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any, NamedTuple

from holdfast.common import typeinfo
from holdfast.common._type_infos.base import same
from holdfast.common.types import Row, make_row
from holdfast.state.types.schema import ListOf, Schema, TupleOf

Convert = Callable[[Any], Any]


class KeyForm(NamedTuple):
    """How keys of a type are stored.

    Attributes:
        freeze: converts the result of a key selector to the stored key. Raises a TypeError or
            ValueError if it is not of the declared type.
        thaw: converts the stored key to the key that functions see.
    """

    freeze: Convert
    thaw: Convert


def key_form(key_type: typeinfo.TypeInformation | None) -> KeyForm | None:
    """Return how keys of a declared type are stored; None if they are stored unchanged."""
    parts = None if key_type is None else _parts(key_type)
    if parts is None or key_type is None:
        return None
    shape, freeze = key_type.coercer() or same, parts.freeze
    return KeyForm(lambda key: freeze(shape(key)), parts.thaw)


def thaw_saved(key_type: Schema | None, keys: list[Any]) -> list[Any]:
    """Convert saved keys to their declared type, given its schema from a savepoint."""
    thaw = None if key_type is None else _thawing(key_type)
    return keys if thaw is None else list(map(thaw, keys))


@singledispatch
def _parts(key_type: typeinfo.TypeInformation) -> KeyForm | None:
    """Return how a value of the declared type is stored."""
    return None


@_parts.register(typeinfo.PrimitiveArrayTypeInfo)
@_parts.register(typeinfo.BasicArrayTypeInfo)
@_parts.register(typeinfo.ObjectArrayTypeInfo)
@_parts.register(typeinfo.ListTypeInfo)
def _(key_type: Any) -> KeyForm:
    if key_type.msgpack_type() is bytes:
        return KeyForm(same, same)  # converting to the declared type returns bytes
    freeze, thaw = _parts(key_type.element_type) or KeyForm(same, same)
    return KeyForm(
        lambda key: None if key is None else tuple(map(freeze, key)),
        lambda key: None if key is None else list(map(thaw, key)),
    )


@_parts.register
def _(key_type: typeinfo.TupleTypeInfo) -> KeyForm | None:
    return _of_fields(key_type.get_field_types(), lambda key, fields: tuple(fields))


@_parts.register
def _(key_type: typeinfo.RowTypeInfo) -> KeyForm | None:
    return _of_fields(key_type.get_field_types(), _like_row)


def _like_row(key: Row, fields: list[Any]) -> Row:
    return make_row(fields, key._index, key.get_row_kind())


def _of_fields(
    types: Sequence[typeinfo.TypeInformation], make: Callable[[Any, list[Any]], Any]
) -> KeyForm | None:
    forms = list(map(_parts, types))
    if not any(forms):
        return None

    def over(converts: list[Convert]) -> Convert:
        def convert(key: Any) -> Any:
            if key is None:
                return None
            return make(key, [each(field) for each, field in zip(converts, key, strict=True)])

        return convert

    freezing = [form.freeze if form else same for form in forms]
    return KeyForm(over(freezing), over([form.thaw if form else same for form in forms]))


def _thawing(schema: Schema) -> Convert | None:
    if isinstance(schema, ListOf) and schema.made == "list":
        item = _thawing(schema.item) or same
        return lambda key: [item(part) for part in key] if isinstance(key, tuple) else key
    if isinstance(schema, TupleOf) and any(map(_thawing, schema.items)):
        return partial(_thaw_fields, [_thawing(part) or same for part in schema.items])
    return None


def _thaw_fields(converts: list[Convert], key: Any) -> Any:
    # NB: keys that are not lists are saved unchanged, whatever type is declared
    if not isinstance(key, tuple) or len(key) != len(converts):
        return key
    return tuple([convert(part) for convert, part in zip(converts, key, strict=True)])
