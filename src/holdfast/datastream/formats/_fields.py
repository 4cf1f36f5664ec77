"""Converts the plain values of a format to the values of a declared type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation, Types

Convert = Callable[[Any], Any]


def converter(declared: TypeInformation) -> Convert:
    """Return a function that parses texts where the type is not text: numbers, dates, instants.

    It descends into containers; bytes are base64 in a text; values that fit are kept.
    """
    if isinstance(declared, RowTypeInfo):
        return _row(declared)
    if isinstance(declared, MapTypeInfo):
        inner = converter(declared.value_type)
        return lambda value: value and {key: inner(each) for key, each in value.items()}
    element = getattr(declared, "element_type", None)
    if element is not None and declared.msgpack_type() is not bytes:
        each = converter(element)
        return lambda value: value and [each(item) for item in value]
    return _leaf(declared)


def _row(declared: RowTypeInfo) -> Convert:
    fields = dict(
        zip(declared.get_field_names(), map(converter, declared.get_field_types()), strict=True)
    )

    def convert(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name: field(value.get(name)) for name, field in fields.items()}

    return convert


def _leaf(declared: TypeInformation) -> Convert:
    python = int if declared == Types.BIG_INT() else declared.msgpack_type()

    def convert(value: Any) -> Any:
        if isinstance(value, str) and python is not str:
            return msgspec.convert(value, python, strict=False)
        return value

    return convert
