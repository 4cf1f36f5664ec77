"""`KeyShape`: the types of an operator's keys, and their conversion to and from parts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.state.columns.key_parts import KeyPart, make_part


class KeyShape:
    """The type of the keys of an operator, and of their namespaces if they have any.

    A key of several columns is a struct. All its fields are parts of the key. Types are widened:
    any integers are 64 bits wide, so a batch with a narrower type has the same keys.
    """

    def __init__(self, key: pa.DataType, namespace: pa.DataType | None = None) -> None:
        keys, spaces = _parts_of(key), [] if namespace is None else _parts_of(namespace)
        self.key = _joined_type(key, keys)
        self.namespace = None if namespace is None else _joined_type(namespace, spaces)
        self.parts: tuple[KeyPart, ...] = (*keys, *spaces)
        self._width = len(keys)

    def __repr__(self) -> str:
        return f"{self.key}" if self.namespace is None else f"{self.key} and {self.namespace}"

    def fits(self, key: pa.DataType, namespace: pa.DataType | None) -> bool:
        """Return whether keys of a batch have these types, or narrower ones."""
        other = KeyShape(key, namespace)
        return [p.type for p in other.parts] == [p.type for p in self.parts] and (
            (other.namespace is None) is (self.namespace is None)
        )

    def name_as(self, key: pa.DataType) -> None:
        """Take over the names of the fields of a key, which saved keys may not have."""
        if key != self.key and kinds.is_struct(key):
            self.key = _joined_type(key, self.parts[: self._width])

    def split(self, keys: pa.Array, namespaces: pa.Array | None) -> list[pa.Array]:
        """Return the parts of keys; raise a ValueError if one is null."""
        parts = checked_parts(keys)
        return parts if namespaces is None else parts + checked_parts(namespaces)

    def join(self, parts: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
        """Return keys and namespaces from their parts."""
        keys = _joined(self.key, parts[: self._width])
        space = self.namespace
        return keys, None if space is None else _joined(space, parts[self._width :])


def checked_parts(keys: pa.Array) -> list[pa.Array]:
    """Return the columns of keys; raise a ValueError if one has a null."""
    # NB: flatten gives null for the fields of a struct that is null
    parts = keys.flatten() if kinds.is_struct(keys.type) else [keys]
    if any(part.null_count for part in parts):
        message = (
            "a key is null, or a field of it; filter these records out, or give them another "
            "key, before key_by"
        )
        raise ValueError(message)
    return parts


def _parts_of(type_: pa.DataType) -> list[KeyPart]:
    types = [field.type for field in type_] if kinds.is_struct(type_) else [type_]
    parts = [make_part(part) for part in types]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        message = (
            f"{type_} cannot be the type of keys in columns; keys are numbers, booleans, dates, "
            "times, timestamps, durations, strings or binary, or a struct of these"
        )
        raise TypeError(message)
    return known


def _joined_type(type_: pa.DataType, parts: Sequence[KeyPart]) -> pa.DataType:
    if not kinds.is_struct(type_):
        return parts[0].type
    return pa.struct([(field.name, part.type) for field, part in zip(type_, parts, strict=True)])


def _joined(type_: pa.DataType, parts: Sequence[pa.Array]) -> pa.Array:
    if not kinds.is_struct(type_):
        return parts[0]
    return pa.StructArray.from_arrays(list(parts), fields=list(type_))
