"""`Row`, a record with fields by position and by name, and `RowKind`.

The names of a row are in one dict from name to position, shared by all rows with the same names:
a named access is one dict lookup, and a row costs no more memory than its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

__all__ = ["NoSuchFieldError", "Row", "RowKind"]

#: field names in order, each with its position; shared between rows, never changed
FieldIndex: TypeAlias = dict[str, int]


class RowKind(Enum):
    """The kind of change that a row describes: an insertion, an update or a deletion."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]


class NoSuchFieldError(KeyError, ValueError):
    """A row has no field of that name; PyFlink's ValueError, and the KeyError Python expects."""

    def __str__(self) -> str:
        return str(self.args[0])


class Row:
    """A record of a fixed number of fields.

    >>> row = Row(name="Alice", age=11)
    >>> row.name, row["age"], row[0], "name" in row
    ('Alice', 11, 'Alice', True)

    A row of names can be called to create rows with these names:

    >>> Person = Row("name", "age")
    >>> Person("Alice", 11)
    Row(name='Alice', age=11)

    Two rows are equal if their kinds are, and their values by name; the order of the names does
    not matter. A row with names never equals one without.
    """

    __slots__ = ("_index", "_row_kind", "_values")

    _index: FieldIndex | None
    _row_kind: RowKind
    _values: list[Any]

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            if args:
                message = "Can not use both args and kwargs to create Row"
                raise ValueError(message)
            self._index = field_index(tuple(kwargs))
            self._values = list(kwargs.values())
        else:
            self._index = None
            self._values = list(args)
        self._row_kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, /, *args: Any, **kwargs: Any) -> Row:
        """Return a row of that kind."""
        row = Row(*args, **kwargs)
        row._row_kind = row_kind
        return row

    def get_row_kind(self) -> RowKind:
        """Return the kind of the row, `RowKind.INSERT` unless set."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of the row."""
        self._row_kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Set the names of the fields, in order."""
        self._index = field_index(tuple(field_names))

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values of the named fields; all values if the row has no names."""
        index = self._index
        if index is None or list(index) == list(names):
            return self._values
        missing = [name for name in names if name not in index]
        if missing:
            message = f"Field names {missing} not exist in {list(index)}."
            raise NoSuchFieldError(message)
        return [self._values[index[name]] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields as a dict by name; with ``recursive``, rows inside it as well."""
        if self._index is None:
            message = "Cannot convert a Row class into dict"
            raise TypeError(message)
        values = [_plain(v) for v in self._values] if recursive else self._values
        return dict(zip(self._index, values, strict=False))

    @property
    def _fields(self) -> list[str]:
        if self._index is None:
            raise AttributeError("_fields")
        return list(self._index)

    def __call__(self, *args: Any) -> Row:
        """Return a row whose names are the values of this one."""
        if len(args) > len(self._values):
            message = (
                f"Can not create Row with fields {self}, expected {len(self)} values but got {args}"
            )
            raise ValueError(message)
        return make_row(list(args), field_index(tuple(self._values)), self._row_kind)

    def __getitem__(self, item: int | slice | str) -> Any:
        if isinstance(item, str):
            return self._values[self._position(item)]
        return self._values[item]

    def __setitem__(self, key: int | slice | str, value: Any) -> None:
        if isinstance(key, str):
            self._values[self._position(key)] = value
        else:
            self._values[key] = value

    def __getattr__(self, item: str) -> Any:
        # NB: only called when there is no slot or method of that name.
        if item[0] != "_":
            index = self._index
            if index is not None and item in index and index[item] < len(self._values):
                return self._values[index[item]]
        raise AttributeError(item)

    def __contains__(self, item: object) -> bool:
        return item in (self._values if self._index is None else self._index)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        if self._row_kind is not other._row_kind:
            return False
        mine, its = self._index, other._index
        if mine is its:
            return self._values == other._values
        if mine is None or its is None or mine.keys() != its.keys():
            return False
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        # Equal rows may have their names in another order, so the hash must not depend on it.
        if self._index is None:
            return hash(tuple(self._values))
        return hash(frozenset(self._values))

    def __reduce__(self) -> tuple[Any, ...]:
        names = None if self._index is None else tuple(self._index)
        if self._row_kind is RowKind.INSERT:
            return _restore, (names, self._values)
        return _restore, (names, self._values, self._row_kind.value)

    def __repr__(self) -> str:
        if self._index is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._index, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def _position(self, name: str) -> int:
        index = self._index
        if index is None:
            message = f"the row {self!r} has no field names; use an index, or set_field_names"
            raise NoSuchFieldError(message)
        position = index.get(name)
        if position is None or position >= len(self._values):
            message = f"no field {name!r} in {self!r}"
            raise NoSuchFieldError(message)
        return position


@lru_cache(maxsize=4096)
def field_index(names: tuple[str, ...]) -> FieldIndex:
    """Return the shared index of these names."""
    index = {name: position for position, name in enumerate(names)}
    if len(index) != len(names):
        message = f"field names must differ from each other; got {list(names)}"
        raise ValueError(message)
    return index


def make_row(
    values: list[Any], index: FieldIndex | None, row_kind: RowKind = RowKind.INSERT
) -> Row:
    """Return a row that uses the list itself; the fast constructor for the runtime."""
    row = Row.__new__(Row)
    row._values = values
    row._index = index
    row._row_kind = row_kind
    return row


def _restore(names: tuple[str, ...] | None, values: list[Any], kind: int = 0) -> Row:
    return make_row(list(values), None if names is None else field_index(names), RowKind(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    return value
