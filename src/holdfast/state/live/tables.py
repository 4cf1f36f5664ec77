"""Tables: the state of all keys under one name, as dicts of Python objects, with change tracking.

A table has ``entries``, by key (by ``(key, namespace)`` if it is namespaced), and ``dirty``, the
marks of the changes since the last write. Views change both in place. The two objects stay the same
for the life of the table, so views may cache them and their bound methods.

Marks record the changes of each key. A delta is written from the marks and the live entries:

    ValueTable   a set of keys
    ListTable    key -> length of the unchanged prefix; -1 if the list was replaced or removed
    MapTable     key -> the set of map keys that changed; None if all may have changed

Marks of consecutive epochs merge into the marks of the whole span; this is used to merge files.
There are no entries for empty lists and maps.

A table that is written while views continue to change it is written as a *picture*: another table
with the entries to write, as they were at one point in time. It refers to the same objects.

- Lists and maps are changed in place by views, and accumulators by functions, which get them to
  add to them or as a result. These are ``shared`` until the picture is written, and a view makes a
  copy before it changes one or hands it out (`Table.own`).
- Values, the elements of lists and the values of maps are handed out to functions, which may change
  them in place and save them then. These are ``lent`` until the picture is written, and a view
  hands out a copy, which takes the place of the original (`Table.own_values`).

``entries`` may be a dict that holds only some of the entries and loads the others on demand (see
`holdfast.state.backends.rocksdb.entries`). Invariant: it holds every marked entry that exists.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from functools import cache
from itertools import accumulate, chain
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from holdfast.common._type_infos.basic import BasicTypeInfo
from holdfast.common._type_infos.time import (
    DateTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from holdfast.common.typeinfo import TypeInformation
from holdfast.state.format.file_header import Op
from holdfast.state.names import StateId
from holdfast.state.types.schema import Schema
from holdfast.state.types.serializers import Serializer

Columns = list[list[Any]]
Marks = TypeVar("Marks", bound="set[Any] | dict[Any, Any]")

_REPLACED: Final = -1
#: kinds of state whose entries are replaced by views, and not changed in place
_REPLACED_ONLY: Final = frozenset({"value"})
#: kinds of state that hand out what is saved
_HANDED_OUT: Final = frozenset({"value", "list", "map"})
#: copying this many entries takes as long as looking one up
_COPIES: Final = 16
_PLAIN: Final = Serializer()
#: types whose objects cannot be changed
IMMUTABLE: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, Decimal, UUID}
    | {datetime.date, datetime.time, datetime.datetime, datetime.timedelta}
)
#: declared types whose values are of such a type
_IMMUTABLE_TYPES: Final = (
    *(BasicTypeInfo, SqlTimeTypeInfo, DateTypeInfo, TimeTypeInfo, TimestampTypeInfo),
)


class ViewedTable(Protocol):
    """What views need of a table."""

    entries: Any
    dirty: Any
    shared: Any
    lent: Any
    namespaced: bool

    def own(self, key: Any, /) -> Any: ...

    def own_values(self, key: Any, /) -> Any: ...


class Table(ABC, Generic[Marks]):
    """Base of all tables."""

    __slots__ = (
        "dirty",
        "entries",
        "expires",
        "hands_out",
        "in_place",
        "is_picture",
        "kind",
        "lent",
        "name",
        "namespaced",
        "only_marked",
        "operator",
        "serializers",
        "shared",
    )

    #: whether marks of before a base are obsolete
    renumbers: ClassVar[bool] = False
    #: the operation that sets a complete entry
    whole: ClassVar[Op] = Op.PUT
    entries: dict[Any, Any]
    dirty: Marks

    def __init__(
        self,
        operator: str,
        name: str,
        kind: str,
        types: tuple[TypeInformation | None, ...],
        namespaced: bool = False,
        expires: bool = False,
    ) -> None:
        self.operator = operator
        self.name = name
        self.kind = kind
        self.namespaced = namespaced
        #: whether it has a time-to-live, and so holds pairs (see
        #: `holdfast.state.live.ttl.lifetime`)
        self.expires = expires
        self.serializers = tuple(map(Serializer, types))
        self.entries = {}
        self.dirty = self.new_marks()
        #: whether entries may be changed in place
        self.in_place = kind not in _REPLACED_ONLY
        #: keys whose entries a picture may refer to; always empty if entries are only replaced
        self.shared: set[Any] = set()
        #: whether functions get objects that are saved, and can change them in place
        self.hands_out = kind in _HANDED_OUT and not isinstance(
            next(reversed(types), None), _IMMUTABLE_TYPES
        )
        #: keys of whose values a picture may refer to some; for a map, with the map keys of those
        #: to which it does not
        self.lent: dict[Any, set[Any] | None] = {}
        #: whether this is a picture of another table
        self.is_picture = False
        #: whether it is a picture that has only the marked entries
        self.only_marked = False

    @property
    def id(self) -> StateId:
        """Return which state it holds."""
        return StateId(self.operator, self.name, self.namespaced)

    @property
    def types(self) -> tuple[Schema | None, ...]:
        """Return the declared types, as files record them."""
        return tuple(s.schema for s in self.serializers)

    def clear(self) -> None:
        """Discard all entries and marks, without marking them as removed."""
        self.entries.clear()
        self.dirty.clear()
        self.all_written()

    @property
    def changes(self) -> int:
        """Return how many keys changed since the last capture; some may count twice."""
        return len(self.dirty)

    @property
    def has_entries(self) -> bool:
        """Return whether there are any entries."""
        return bool(self.entries)

    @property
    def size(self) -> int:
        """Return how many entries there are, perhaps as an estimate."""
        return len(self.entries)

    def take_marks(self) -> Marks:
        """Return the marks, and remove them; the caller must not change what is returned."""
        marks: Marks = self.dirty.copy()  # type: ignore[assignment]
        self.dirty.clear()
        return marks

    def all_written(self) -> None:
        """Forget the pictures of this table, because all of them have been written."""
        self.shared.clear()
        self.lent.clear()

    def picture(self, marks: Marks | None) -> Table[Marks]:
        """Return a table that keeps the marked entries as they are now.

        None means all entries. The caller must not change the marks afterwards.
        """
        entries = self.entries
        self.share(entries if marks is None else marks)
        if marks is None or len(entries) <= _COPIES * len(marks):
            return self.having(entries.copy())
        get = entries.get
        marked = {key: entry for key in marks if (entry := get(key)) is not None}
        return self.having(marked, only_marked=True)

    def having(self, entries: dict[Any, Any], only_marked: bool = False) -> Table[Marks]:
        """Return a picture with these entries."""
        picture = copy.copy(self)
        picture.entries = entries
        picture.dirty = self.new_marks()
        picture.is_picture = True
        picture.only_marked = only_marked
        return picture

    def share(self, keys: Iterable[Any]) -> None:
        """Record that a picture refers to the entries of keys."""
        if self.in_place:
            self.shared.update(keys)
        if self.hands_out:
            self.lent.update(dict.fromkeys(keys))

    def own(self, key: Any) -> Any:
        """Return the entry of a key for an in-place change; a copy if a picture refers to it."""
        entry = self.entries.get(key)
        if key in self.shared and entry is not None:
            entry = self.entries[key] = self._copied(entry)
        self.shared.discard(key)
        return entry

    def own_values(self, key: Any) -> Any:
        """Return the entry of a key, whose values functions may change; copies if necessary."""
        entry = self.entries.get(key)
        if key in self.lent and entry is not None:
            entry = self.entries[key] = self._with_own_values(entry)
            self.shared.discard(key)
        self.lent.pop(key, None)
        return entry

    @staticmethod
    def _with_own_values(entry: Any) -> Any:
        """Return a copy of an entry and of all its values that can be changed."""
        return own_value(entry)

    @staticmethod
    @abstractmethod
    def _copied(entry: Any) -> Any:
        """Return a copy that can be changed in place without changing the entry."""

    @staticmethod
    @abstractmethod
    def new_marks() -> Marks:
        """Return empty marks."""

    @abstractmethod
    def merge(self, older: Marks, newer: Marks) -> Marks:
        """Return the marks of both spans together; ``older`` may be changed."""

    @abstractmethod
    def mark(self, marks: Marks, op: Op, keys: list[Any], columns: Columns) -> None:
        """Mark the changes of an operation from a file."""

    @abstractmethod
    def operations(self, marks: Marks | None) -> list[tuple[Op, list[Any]]]:
        """Return the operations that write the marked entries, or all of them, with their keys."""

    @abstractmethod
    def columns(self, op: Op, keys: list[Any], marks: Marks | None) -> Columns:
        """Return the columns of an operation: first those with one item per key, then flat ones."""

    def rows(self, op: Op, keys: list[Any], marks: Marks | None) -> list[Any] | None:
        """Return the only column of an operation, for all of its keys; None if it has several.

        Reading the entries once, in their own order, is faster than reading them for each chunk,
        where they are sorted by key group.
        """
        return None

    @abstractmethod
    def column_serializers(self, op: Op) -> tuple[Serializer, ...]:
        """Return a serializer for each column of an operation."""

    @abstractmethod
    def apply(self, op: Op, keys: list[Any], columns: Columns) -> None:
        """Apply an operation without marking changes."""

    def delete(self, keys: Iterable[Any]) -> None:
        """Remove entries without marking changes."""
        pop = self.entries.pop
        for key in keys:
            pop(key, None)


class ValueTable(Table[set[Any]]):
    """One value or accumulator per key."""

    __slots__ = ()

    def own_values(self, key: Any) -> Any:
        return self.own(key) if self.in_place else super().own_values(key)

    @staticmethod
    def _copied(entry: Any) -> Any:
        return own_value(entry)

    @staticmethod
    def new_marks() -> set[Any]:
        return set()

    def merge(self, older: set[Any], newer: set[Any]) -> set[Any]:
        older |= newer
        return older

    def mark(self, marks: set[Any], op: Op, keys: list[Any], columns: Columns) -> None:
        marks.update(keys)

    def operations(self, marks: set[Any] | None) -> list[tuple[Op, list[Any]]]:
        if marks is None:
            return [(Op.PUT, list(self.entries))]
        present = dict.keys(self.entries)
        puts = list(present) if self.only_marked else [key for key in marks if key in present]
        deletes = list(marks.difference(puts)) if len(puts) < len(marks) else []
        return [(Op.PUT, puts), (Op.DELETE, deletes)]

    def columns(self, op: Op, keys: list[Any], marks: set[Any] | None) -> Columns:
        return [list(map(self.entries.__getitem__, keys))] if op is Op.PUT else []

    def rows(self, op: Op, keys: list[Any], marks: set[Any] | None) -> list[Any] | None:
        if op is not Op.PUT:
            return None
        if marks is None or self.only_marked:  # the operation's keys are those of the entries
            return list(self.entries.values())
        return list(map(self.entries.__getitem__, keys))

    def column_serializers(self, op: Op) -> tuple[Serializer, ...]:
        return self.serializers if op is Op.PUT else ()

    def apply(self, op: Op, keys: list[Any], columns: Columns) -> None:
        if op is Op.PUT:
            self.entries.update(zip(keys, columns[0], strict=True))
        else:
            self.delete(keys)


class ListTable(Table[dict[Any, int]]):
    """A list per key. Appended elements are written without the rest of the list."""

    __slots__ = ()

    whole = Op.LIST_REPLACE

    @staticmethod
    def _copied(entry: list[Any]) -> list[Any]:
        return entry.copy()

    @staticmethod
    def _with_own_values(entry: list[Any]) -> list[Any]:
        return list(map(own_value, entry))

    @staticmethod
    def new_marks() -> dict[Any, int]:
        return {}

    def merge(self, older: dict[Any, int], newer: dict[Any, int]) -> dict[Any, int]:
        """Return the marks of both spans together: the older prefix, unless replaced since."""
        for key, prefix in newer.items():
            if prefix == _REPLACED or key not in older:
                older[key] = prefix
        return older

    def mark(self, marks: dict[Any, int], op: Op, keys: list[Any], columns: Columns) -> None:
        prefixes = columns[0] if op is Op.LIST_APPEND else [_REPLACED] * len(keys)
        self.merge(marks, dict(zip(keys, prefixes, strict=True)))

    def operations(self, marks: dict[Any, int] | None) -> list[tuple[Op, list[Any]]]:
        if marks is None:
            return [(Op.LIST_REPLACE, list(self.entries))]
        present = dict.keys(self.entries)
        appends = [k for k, prefix in marks.items() if prefix > 0 and k in present]
        replaces = [k for k, prefix in marks.items() if prefix <= 0 and k in present]
        deletes = [k for k in marks if k not in present]
        return [(Op.LIST_APPEND, appends), (Op.LIST_REPLACE, replaces), (Op.DELETE, deletes)]

    def columns(self, op: Op, keys: list[Any], marks: dict[Any, int] | None) -> Columns:
        """Return the lengths and the elements."""
        if op is Op.DELETE:
            return []
        lists = [self.entries[key] for key in keys]
        if op is Op.LIST_REPLACE or marks is None:
            return [list(map(len, lists)), list(chain.from_iterable(lists))]
        prefixes = [marks[key] for key in keys]
        tails = [values[prefix:] for values, prefix in zip(lists, prefixes, strict=True)]
        return [prefixes, list(map(len, tails)), list(chain.from_iterable(tails))]

    def column_serializers(self, op: Op) -> tuple[Serializer, ...]:
        return {
            Op.LIST_REPLACE: (_PLAIN, *self.serializers),
            Op.LIST_APPEND: (_PLAIN, _PLAIN, *self.serializers),
        }.get(op, ())

    def apply(self, op: Op, keys: list[Any], columns: Columns) -> None:
        """Apply an operation.

        An append first truncates the list to the length it had before, so that a state that already
        contains some of the appended elements (see `FileRef`) does not get them twice. If the list
        was removed since, a later operation of the same file removes it.
        """
        entries = self.entries
        if op is Op.DELETE:
            self.delete(keys)
        elif op is Op.LIST_REPLACE:
            entries.update(zip(keys, _split(*columns), strict=True))
        else:
            prefixes, lengths, elements = columns
            tails = _split(lengths, elements)
            for key, prefix, tail in zip(keys, prefixes, tails, strict=True):
                entries.setdefault(key, [])[prefix:] = tail


class MapTable(Table[dict[Any, "set[Any] | None"]]):
    """A map per key. Only the entries that changed are written."""

    __slots__ = ()

    whole = Op.MAP_REPLACE

    @staticmethod
    def _copied(entry: dict[Any, Any]) -> dict[Any, Any]:
        return entry.copy()

    @staticmethod
    def _with_own_values(entry: dict[Any, Any]) -> dict[Any, Any]:
        return {name: own_value(value) for name, value in entry.items()}

    def own_value_of(self, key: Any, name: Any) -> None:
        """Replace one value of a lent map by a copy, if functions could change it."""
        entry, copied = self.entries.get(key), self.lent[key]
        if entry is None or name not in entry or (copied is not None and name in copied):
            return
        value = entry[name]
        if is_immutable(value):
            return
        self.own(key)[name] = copy.deepcopy(value)
        if copied is None:
            self.lent[key] = {name}
        else:
            copied.add(name)

    @staticmethod
    def new_marks() -> dict[Any, set[Any] | None]:
        return {}

    def merge(
        self, older: dict[Any, set[Any] | None], newer: dict[Any, set[Any] | None]
    ) -> dict[Any, set[Any] | None]:
        """Return the marks of both spans together: the map keys of both, unless replaced since."""
        for key, changed in newer.items():
            known = older.get(key)
            if changed is None or key not in older:
                older[key] = changed
            elif known is not None:
                older[key] = known | changed
        return older

    def mark(
        self, marks: dict[Any, set[Any] | None], op: Op, keys: list[Any], columns: Columns
    ) -> None:
        newer: dict[Any, set[Any] | None]
        if op in (Op.MAP_PUT, Op.MAP_REMOVE):
            newer = dict(zip(keys, map(set, _split(columns[0], columns[1])), strict=True))
        else:
            newer = dict.fromkeys(keys)
        self.merge(marks, newer)

    def operations(self, marks: dict[Any, set[Any] | None] | None) -> list[tuple[Op, list[Any]]]:
        if marks is None:
            return [(Op.MAP_REPLACE, list(self.entries))]
        present = dict.keys(self.entries)
        parts = [
            (k, changed, self.entries[k].keys()) for k, changed in marks.items() if k in present
        ]
        return [
            (Op.MAP_REPLACE, [k for k, changed, _ in parts if changed is None]),
            (
                Op.MAP_PUT,
                [k for k, changed, now in parts if changed and not changed.isdisjoint(now)],
            ),
            (Op.MAP_REMOVE, [k for k, changed, now in parts if changed and changed - now]),
            (Op.DELETE, [k for k in marks if k not in present]),
        ]

    def columns(self, op: Op, keys: list[Any], marks: dict[Any, set[Any] | None] | None) -> Columns:
        """Return the lengths, the map keys and, unless they are removed, the map values."""
        if op is Op.DELETE:
            return []
        map_keys = [self._map_keys(op, key, marks) for key in keys]
        columns = [list(map(len, map_keys)), list(chain.from_iterable(map_keys))]
        if op is not Op.MAP_REMOVE:
            values = (
                map(self.entries[key].__getitem__, names)
                for key, names in zip(keys, map_keys, strict=True)
            )
            columns.append(list(chain.from_iterable(values)))
        return columns

    def _map_keys(self, op: Op, key: Any, marks: dict[Any, set[Any] | None] | None) -> list[Any]:
        entry = self.entries[key]
        changed = None if marks is None else marks[key]
        if changed is None:
            return list(entry)
        return [name for name in changed if (name in entry) is (op is Op.MAP_PUT)]

    def column_serializers(self, op: Op) -> tuple[Serializer, ...]:
        if op is Op.DELETE:
            return ()
        key, value = self.serializers
        return (_PLAIN, key) if op is Op.MAP_REMOVE else (_PLAIN, key, value)

    def apply(self, op: Op, keys: list[Any], columns: Columns) -> None:
        if op is Op.DELETE:
            self.delete(keys)
        elif op is Op.MAP_REMOVE:
            self._remove(keys, columns)
        else:
            self._put(op, keys, columns)

    def _put(self, op: Op, keys: list[Any], columns: Columns) -> None:
        lengths, map_keys, values = columns
        pairs = _split(lengths, list(zip(map_keys, values, strict=True)))
        for key, added in zip(keys, pairs, strict=True):
            entry = self.entries.get(key)
            if entry is None or op is Op.MAP_REPLACE:
                self.entries[key] = dict(added)
            else:
                entry.update(added)

    def _remove(self, keys: list[Any], columns: Columns) -> None:
        for key, names in zip(keys, _split(*columns), strict=True):
            entry = self.entries.get(key, {})
            for name in names:
                entry.pop(name, None)


_TABLES: Final[dict[str, type[Table[Any]]]] = {"list": ListTable, "map": MapTable}


def make_table(
    operator: str,
    name: str,
    kind: str,
    types: tuple[TypeInformation | None, ...],
    namespaced: bool,
    expires: bool,
) -> Table[Any]:
    """Return a table for a state of that kind."""
    return _TABLES.get(kind, ValueTable)(operator, name, kind, types, namespaced, expires)


def own_value(value: Any) -> Any:
    """Return a copy of a value; the value itself if nobody can change it."""
    return value if is_immutable(value) else copy.deepcopy(value)


def is_immutable(value: Any) -> bool:
    """Return whether a value is known to be immutable; False for some immutable objects, too."""
    kind = type(value)
    # NB: the second test takes a third of the time that the general one takes for such a tuple
    if kind in IMMUTABLE or (kind is tuple and IMMUTABLE.issuperset(map(type, value))):
        return True
    if isinstance(value, Enum):
        return True
    if isinstance(value, tuple | frozenset):
        # NB: an object of a subclass may have attributes, too
        return not getattr(value, "__dict__", None) and all(map(is_immutable, value))
    fields = _frozen_fields(kind)  # type: ignore[arg-type]
    return fields is not None and all(is_immutable(getattr(value, name)) for name in fields)


@cache
def _frozen_fields(cls: type) -> tuple[str, ...] | None:
    """Return the fields of a class whose objects do not get other values; None for all others."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__ if cls.__struct_config__.frozen else None
    # NB: a subclass that is no dataclass itself may have other attributes
    params = cls.__dict__.get("__dataclass_params__")
    if params is not None and params.frozen:
        return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]
    return None


def _split(lengths: list[int], flat: list[Any]) -> list[list[Any]]:
    ends = list(accumulate(lengths))
    return [flat[end - length : end] for end, length in zip(ends, lengths, strict=True)]
