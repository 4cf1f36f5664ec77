"""From the schema that state was saved under to the one that the job declares.

`upgrade` says whether state can be read, and how: it returns a function that takes a value as
MessagePack has it, written under the old schema, and gives it as the new one would write it. The
rules, each of which also holds for what is inside of lists, maps, tuples and records:

- **numbers** may become wider: byte, short, int, long, big int; float, double; whole numbers to
  float, double and decimal. A whole number that a float cannot hold exactly is refused when it is
  met. A char may become a string.
- **None** may become allowed. It cannot become forbidden, since there may be one.
- **records** go by the names of their fields: dataclasses, named tuples, structs and rows alike.
  Fields may be moved, removed, and added if they have a default. What the class is called does
  not matter.
- **tuples** keep their number of items. Lists and tuples of any length may become one another, and
  so may sets and frozensets; sets may become lists.
- **enums** go by their values, which may be added but not removed.
- **unions** keep their options, or get more.
- **custom serializers** keep their name, and read the version that was written.
- **what had no type or was pickled** may get any type: whether each value has it is seen when it
  is read. What had a type keeps having one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from holdfast.state.schema import (
    Custom,
    Enumeration,
    Layout,
    ListOf,
    MapOf,
    OneOf,
    Opaque,
    Plain,
    Record,
    Reference,
    Schema,
    TupleOf,
    describe,
    is_written_as,
)

__all__ = ["Incompatible", "Upgrade", "same_bytes", "upgrade"]

#: from a value under the old schema to one under the new; None: they are the same
Upgrade = Callable[[Any], Any] | None

_WHOLE: Final = ("byte", "short", "int", "long", "big int")
_SETS: Final = ("set", "frozenset")
_FLOAT: Final = struct.Struct("<f")


class Incompatible(Exception):
    """State of the one schema cannot be read under the other: where, and why."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def inside(self, step: str) -> Incompatible:
        """Return this as seen from what the problem is in."""
        self.steps.append(step)
        return self

    def __str__(self) -> str:
        where = "".join(reversed(self.steps)).lstrip(".")
        return f"{where}: {self.problem}" if where else self.problem


def upgrade(old: Schema | None, new: Schema | None) -> Upgrade:
    """Return how values of the old schema are read under the new one.

    Raises:
        Incompatible: when they cannot.
    """
    if old is None or isinstance(old, Opaque):
        return None
    if old == new:
        return None
    if new is None or isinstance(new, Opaque):
        declared = "no type" if new is None else "a type that is pickled"
        raise Incompatible(
            f"it was written under a type and now has {declared}; declare a type, or name the "
            "state anew to begin without what was saved"
        )
    return _Comparison().compare(old, new, (), ())


def same_bytes(old: Schema | None, new: Schema | None) -> bool:
    """Return whether values of both schemas are written alike, as keys have to be."""
    if None in (old, new) or isinstance(old, Opaque) or isinstance(new, Opaque):
        return True  # nothing is known
    try:
        return upgrade(old, new) is None
    except Incompatible:
        return False


_Around = tuple[Record, ...]


class _Comparison:
    """One comparison of two schemas; knows the pairs of records that it is at or has done."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], Upgrade] = {}

    def compare(self, old: Schema, new: Schema, old_in: _Around, new_in: _Around) -> Upgrade:
        """Return how a part of a value is read; None may stand in its place if it could before."""
        nullable = old.nullable
        if isinstance(old, Reference):
            old, old_in = _resolve(old, old_in)
        if isinstance(new, Reference):
            new, new_in = _resolve(new, new_in)
        function = self._compare(old, new, old_in, new_in)
        if function is None or not nullable:
            return function
        change = function
        return lambda value: None if value is None else change(value)

    def part(
        self, step: str, old: Schema, new: Schema, old_in: _Around, new_in: _Around
    ) -> Upgrade:
        """Return how a part is read that may be None only if the new schema says so."""
        try:
            if old.nullable and not new.nullable:
                raise Incompatible(
                    f"it may be None in what was saved, and {describe(new)} allows no None; "
                    "declare it as optional"
                )
            return self.compare(old, new, old_in, new_in)
        except Incompatible as problem:
            raise problem.inside(step) from None

    def _compare(self, old: Schema, new: Schema, old_in: _Around, new_in: _Around) -> Upgrade:
        match old, new:
            case Plain(), Plain():
                return _plain(old, new)
            case ListOf(), ListOf() if old.made in _SETS or new.made not in _SETS:
                return _each(self.part("[]", old.item, new.item, old_in, new_in))
            case MapOf(), MapOf():
                key = self.part("'s key", old.key, new.key, old_in, new_in)
                return _each_entry(key, self.part("[]", old.value, new.value, old_in, new_in))
            case TupleOf(), TupleOf():
                return self._tuple(old, new, old_in, new_in)
            case Record(), Record():
                return self._record(old, new, old_in, new_in)
            case Enumeration(), Enumeration():
                return _enumeration(old, new)
            case Custom(), Custom():
                return _custom(old, new)
            case _, OneOf():
                return self._union(old, new, old_in, new_in)
        raise _another(old, new)

    def _tuple(self, old: TupleOf, new: TupleOf, old_in: _Around, new_in: _Around) -> Upgrade:
        if len(old.items) != len(new.items):
            raise Incompatible(
                f"it was a tuple of {len(old.items)} and is one of {len(new.items)} now; use a "
                "named tuple, a dataclass or a row, whose fields have names"
            )
        pairs = enumerate(zip(old.items, new.items, strict=True))
        return _items([self.part(f"[{i}]", a, b, old_in, new_in) for i, (a, b) in pairs])

    def _union(self, old: Schema, new: OneOf, old_in: _Around, new_in: _Around) -> Upgrade:
        options = old.options if isinstance(old, OneOf) else (old,)
        changes: list[tuple[Schema, Callable[[Any], Any]]] = []
        for option in options:
            change = self._option(option, new, old_in, new_in)
            if change is not None:
                changes.append((_referred(option, old_in), change))
        return partial(_by_option, changes) if changes else None

    def _option(self, old: Schema, new: OneOf, old_in: _Around, new_in: _Around) -> Upgrade:
        """Return how an option is read: as before, or if it can be told from others changed."""
        mark = _mark(_referred(old, old_in))
        for option in new.options:
            if _mark(_referred(option, new_in)) != mark:
                continue
            try:
                change = self.compare(old, option, old_in, new_in)
            except Incompatible:
                continue
            if change is None or not isinstance(old, Plain):
                return change
        raise Incompatible(f"{describe(new)} has nothing to read {describe(old)} as")

    def _record(self, old: Record, new: Record, old_in: _Around, new_in: _Around) -> Upgrade:
        pair = id(old), id(new)
        if pair not in self._records:
            # NB: inside itself it is called, as whether it changes anything is not known there
            record = self._records[pair] = _RecordUpgrade(old, new)
            try:
                self._fill(record, old, new, (*old_in, old), (*new_in, new))
            except Incompatible:
                del self._records[pair]  # another option of a union may do
                raise
            if record.is_identity:
                self._records[pair] = None
        return self._records[pair]

    def _fill(
        self, record: _RecordUpgrade, old: Record, new: Record, old_in: _Around, new_in: _Around
    ) -> None:
        before = {field.name: field for field in old.fields}
        for field in new.fields:
            if field.name in before:
                schemas = before[field.name].schema, field.schema
                record.parts[field.name] = self.part(f".{field.name}", *schemas, old_in, new_in)
            elif field.required:
                problem = "it is new and has no default; give it one"
                raise Incompatible(problem).inside(f".{field.name}")
        record.check()


class _RecordUpgrade:
    """From a record as it was written to the record as it is written now."""

    def __init__(self, old: Record, new: Record) -> None:
        self._old, self._new = old, new
        #: by field: how what it holds is read
        self.parts: dict[str, Upgrade] = {}

    @property
    def is_identity(self) -> bool:
        """Whether the new schema reads what the old one wrote."""
        old, new = self._old, self._new
        if (old.layout, old.mark) != (new.layout, new.mark) or any(self._changes()):
            return False
        written = {field.name: field.written for field in old.fields}
        if new.layout is Layout.MAP:
            if new.strict and not written.keys() <= self.parts.keys():
                return False
            return all(written.get(f.name, f.written) == f.written for f in new.fields)
        return list(written) == [field.name for field in new.fields]

    def _changes(self) -> list[Upgrade]:
        return [part for part in self.parts.values() if part is not None and part is not self]

    def check(self) -> None:
        """Refuse a new field whose place in an array cannot be filled."""
        if self._new.layout is Layout.MAP:
            return
        kept = [i for i, field in enumerate(self._new.fields) if field.name in self.parts]
        for field in self._new.fields[: max(kept, default=-1)]:
            if field.name not in self.parts and not field.default:
                problem = "it is new and its default is made by a function; put it at the end"
                raise Incompatible(problem).inside(f".{field.name}")

    def __call__(self, value: Any) -> Any:
        """Return the record as the new schema writes it."""
        fields = {
            name: (self.parts[name] or _same)(part) for name, part in self._values(value).items()
        }
        if self._new.layout is Layout.MAP:
            mark = dict([self._new.mark]) if self._new.mark else {}
            names = {field.name: field.written for field in self._new.fields}
            return mark | {names[name]: value for name, value in fields.items()}
        return [*self._head(value), *self._array(fields)]

    def _values(self, value: Any) -> dict[str, Any]:
        """The fields that were written and are still there, by name."""
        old, parts = self._old, self.parts
        if old.layout is Layout.MAP:
            written = [f for f in old.fields if f.name in parts and f.written in value]
            return {field.name: value[field.written] for field in written}
        head = 1 if old.layout is Layout.ROW or old.mark else 0
        pairs = zip(old.fields, value[head:], strict=False)
        return {field.name: item for field, item in pairs if field.name in parts}

    def _head(self, value: Any) -> list[Any]:
        """What stands before the fields in an array: the kind of a row, or the mark."""
        if self._new.layout is Layout.ROW:
            return [value[0] if self._old.layout is Layout.ROW else 0]
        return [self._new.mark[1]] if self._new.mark else []

    def _array(self, fields: dict[str, Any]) -> list[Any]:
        """The fields in their order, up to the first whose default only the class can make."""
        array: list[Any] = []
        for field in self._new.fields:
            if field.name in fields:
                array.append(fields.pop(field.name))
            elif field.default:
                array.append(field.default[0])
            else:
                break
        if fields:
            problem = "a value was saved without it, and its default is not known"
            raise Incompatible(problem).inside(f".{field.name}")
        return array


def _resolve(reference: Reference, around: _Around) -> tuple[Record, _Around]:
    """Return the record that is referred to, and the records around that."""
    place = len(around) - reference.up
    return around[place], around[:place]


def _referred(schema: Schema, around: _Around) -> Schema:
    return _resolve(schema, around)[0] if isinstance(schema, Reference) else schema


def _mark(schema: Schema) -> str | int | None:
    """What tells a record from the other options of a union."""
    return schema.mark[1] if isinstance(schema, Record) and schema.mark else None


def _another(old: Schema, new: Schema) -> Incompatible:
    return Incompatible(f"{describe(old)} cannot be read as {describe(new)}")


def _plain(old: Plain, new: Plain) -> Upgrade:
    if old.kind == new.kind:
        return None
    if old.kind in _WHOLE:
        if new.kind in _WHOLE and _WHOLE.index(old.kind) < _WHOLE.index(new.kind):
            return None
        if new.kind == "decimal":
            return _to_decimal
        if new.kind in ("float", "double") and old.kind != "big int":
            return partial(_to_float, new.kind)
    if (old.kind, new.kind) in (("float", "double"), ("char", "string")):
        return None
    raise _another(old, new)


def _to_float(kind: str, value: int) -> float:
    exact = float(value)
    if kind == "float":
        exact = _FLOAT.unpack(_FLOAT.pack(exact))[0]
    if exact != value:
        raise Incompatible(f"the saved number {value} is not exactly a {kind}")
    return exact


def _to_decimal(value: int | str) -> str:
    return str(int(value, 16) if isinstance(value, str) else value)


def _each(item: Upgrade) -> Upgrade:
    return None if item is None else lambda values: [item(value) for value in values]


def _each_entry(key: Upgrade, value: Upgrade) -> Upgrade:
    if key is None and value is None:
        return None
    of_key, of_value = key or _same, value or _same
    return lambda entries: {of_key(k): of_value(v) for k, v in entries.items()}


def _items(parts: list[Upgrade]) -> Upgrade:
    if not any(parts):
        return None
    each = [part or _same for part in parts]
    return lambda values: tuple([f(value) for f, value in zip(each, values, strict=True)])


def _same(value: Any) -> Any:
    return value


def _enumeration(old: Enumeration, new: Enumeration) -> Upgrade:
    gone = [value for value in old.values if value not in new.values]
    if gone:
        raise Incompatible(
            f"{new.name} has no longer the value {', '.join(map(repr, gone))}, which may have been "
            "saved; keep the member"
        )
    return None


def _custom(old: Custom, new: Custom) -> Upgrade:
    if old.name != new.name:
        raise _another(old, new)
    if old.version not in new.reads:
        raise Incompatible(
            f"{new.name} version {new.version} does not read version {old.version}; return a "
            f"function for it from {new.name}.reader"
        )
    return None


def _by_option(changes: list[tuple[Schema, Callable[[Any], Any]]], value: Any) -> Any:
    found = (change(value) for option, change in changes if is_written_as(option, value))
    return next(found, value)
