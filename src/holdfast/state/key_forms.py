"""Keys of declared types whose values cannot be hashed: lists, and what has lists in it.

State is found by its key in a dict, and Python has no hash for a list. So a key is kept as a tuple
where its declared type says list: in memory, in key groups, and in files. Functions are given the
list again, one of their own each time. A key without a declared type is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any, NamedTuple

from holdfast.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from holdfast.common.types import Row, make_row
from holdfast.state.schema import ListOf, Schema, TupleOf

__all__ = ["KeyForm", "key_form", "thaw_saved"]

Convert = Callable[[Any], Any]


class KeyForm(NamedTuple):
    """How keys of a type are kept.

    Attributes:
        freeze: from what a key selector returns to the key as it is kept. Raises a TypeError or
            ValueError if it is not of the declared type.
        thaw: from the key as it is kept to the key as functions see it.
    """

    freeze: Convert
    thaw: Convert


def key_form(key_type: TypeInformation | None) -> KeyForm | None:
    """Return how keys of a declared type are kept; None: as they are."""
    parts = None if key_type is None else _parts(key_type)
    if parts is None or key_type is None:
        return None
    shape, freeze = key_type.coercer() or _same, parts.freeze
    return KeyForm(lambda key: freeze(shape(key)), parts.thaw)


def thaw_saved(key_type: Schema | None, keys: list[Any]) -> list[Any]:
    """Return saved keys as their declared type has them, which a savepoint has as a schema."""
    thaw = None if key_type is None else _thawing(key_type)
    return keys if thaw is None else list(map(thaw, keys))


@singledispatch
def _parts(key_type: TypeInformation) -> KeyForm | None:
    """Return how a value in the declared shape is kept."""
    return None


@_parts.register(PrimitiveArrayTypeInfo)
@_parts.register(BasicArrayTypeInfo)
@_parts.register(ObjectArrayTypeInfo)
@_parts.register(ListTypeInfo)
def _(key_type: Any) -> KeyForm:
    if key_type.msgpack_type() is bytes:
        return KeyForm(_same, _same)  # bytes, once they are in shape
    freeze, thaw = _parts(key_type.element_type) or KeyForm(_same, _same)
    return KeyForm(
        lambda key: None if key is None else tuple(map(freeze, key)),
        lambda key: None if key is None else list(map(thaw, key)),
    )


@_parts.register
def _(key_type: TupleTypeInfo) -> KeyForm | None:
    return _of_fields(key_type.get_field_types(), lambda key, fields: tuple(fields))


@_parts.register
def _(key_type: RowTypeInfo) -> KeyForm | None:
    return _of_fields(key_type.get_field_types(), _like_row)


def _like_row(key: Row, fields: list[Any]) -> Row:
    return make_row(fields, key._index, key.get_row_kind())


def _of_fields(
    types: Sequence[TypeInformation], make: Callable[[Any, list[Any]], Any]
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

    freezing = [form.freeze if form else _same for form in forms]
    return KeyForm(over(freezing), over([form.thaw if form else _same for form in forms]))


def _thawing(schema: Schema) -> Convert | None:
    if isinstance(schema, ListOf) and schema.made == "list":
        item = _thawing(schema.item) or _same
        return lambda key: [item(part) for part in key] if isinstance(key, tuple) else key
    if isinstance(schema, TupleOf) and any(map(_thawing, schema.items)):
        return partial(_thaw_fields, [_thawing(part) or _same for part in schema.items])
    return None


def _thaw_fields(converts: list[Convert], key: Any) -> Any:
    # NB: keys that are no lists are saved as they are, whatever is declared
    if not isinstance(key, tuple) or len(key) != len(converts):
        return key
    return tuple([convert(part) for convert, part in zip(converts, key, strict=True)])


def _same(value: Any) -> Any:
    return value
