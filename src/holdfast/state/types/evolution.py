"""Schema evolution: from the schema that state was saved under to the one that the job declares.

`upgrade` determines whether state can be read, and how. It returns a function that converts a value
in MessagePack's types from the form of the old schema to the form of the new one. The rules, which
also apply inside lists, maps, tuples and records:

- **numbers** may become wider: byte, short, int, long, big int; float, double; integers to float,
  double and decimal. An integer that a float cannot represent exactly is an error when it is read.
  A char may become a string.
- **None** may become allowed. It cannot become forbidden, since a saved value may be None.
- **records** are compared by the names of their fields: dataclasses, named tuples, structs and rows
  alike. Fields may be moved, removed, and added if they have a default. The name of the class does
  not matter.
- **tuples** keep their number of items. Lists and tuples of any length may become one another, and
  so may sets and frozensets; sets may become lists.
- **enums** are compared by their values, which may be added but not removed.
- **unions** keep their options; options may be added.
- **custom serializers** keep their name, and must read the version that was written.
- **values without a type, or pickled ones,** may get any type: each value is checked when it is
  read. A state with a type must keep a type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from holdfast.common._type_infos.base import same
from holdfast.state.types.schema import (
    CustomSchema,
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

#: converts a value of the old schema to the new one; None if both are written in the same way
Upgrade = Callable[[Any], Any] | None

_WHOLE: Final = ("byte", "short", "int", "long", "big int")
_SETS: Final = ("set", "frozenset")
_FLOAT: Final = struct.Struct("<f")


class Incompatible(Exception):
    """State of one schema cannot be read under the other; the message has the path and reason."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def inside(self, step: str) -> Incompatible:
        """Prepend a step to the path of the problem."""
        self.steps.append(step)
        return self

    def __str__(self) -> str:
        where = "".join(reversed(self.steps)).lstrip(".")
        return f"{where}: {self.problem}" if where else self.problem


def upgrade(old: Schema | None, new: Schema | None) -> Upgrade:
    """Return how values of the old schema are read under the new one.

    Raises:
        Incompatible: if they cannot.
    """
    if old is None or isinstance(old, Opaque):
        return None
    if old == new:
        return None
    if new is None or isinstance(new, Opaque):
        declared = "no type" if new is None else "a type that is pickled"
        raise Incompatible(
            f"it was written under a type and now has {declared}; declare a type, or rename the "
            "state to start without the saved values"
        )
    return _Comparison().compare(old, new, (), ())


def same_bytes(old: Schema | None, new: Schema | None) -> bool:
    """Return whether values of both schemas have the same bytes, which is required of keys."""
    if None in (old, new) or isinstance(old, Opaque) or isinstance(new, Opaque):
        return True  # nothing is known
    try:
        return upgrade(old, new) is None
    except Incompatible:
        return False


_Around = tuple[Record, ...]


class _Comparison:
    """One comparison of two schemas; tracks the pairs of records that it has compared."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], Upgrade] = {}

    def compare(self, old: Schema, new: Schema, old_in: _Around, new_in: _Around) -> Upgrade:
        """Return how a part of a value is read; it may be None if the old schema allowed that."""
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
        """Return how a part is read that may be None only if the new schema allows it."""
        try:
            if old.nullable and not new.nullable:
                raise Incompatible(
                    f"it may be None in saved values, and {describe(new)} allows no None; "
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
            case CustomSchema(), CustomSchema():
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
        """Return how an option is read; it may change only if it is distinguishable from others."""
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
        raise Incompatible(f"{describe(new)} has no option that can read {describe(old)}")

    def _record(self, old: Record, new: Record, old_in: _Around, new_in: _Around) -> Upgrade:
        pair = id(old), id(new)
        if pair not in self._records:
            # NB: registered before its fields, since a record may contain itself. There the upgrade
            # is called even if it turns out to change nothing.
            record = self._records[pair] = _RecordUpgrade(old, new)
            try:
                self._fill(record, old, new, (*old_in, old), (*new_in, new))
            except Incompatible:
                del self._records[pair]  # another option of a union may be compatible
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
    """Converts a record from the old schema to the new one."""

    def __init__(self, old: Record, new: Record) -> None:
        self._old, self._new = old, new
        #: by field: how its value is read
        self.parts: dict[str, Upgrade] = {}

    @property
    def is_identity(self) -> bool:
        """Return whether records of the old schema can be read under the new one unchanged."""
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
        """Raise an error for a new field in an array whose default is not known."""
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
            name: (self.parts[name] or same)(part) for name, part in self._values(value).items()
        }
        if self._new.layout is Layout.MAP:
            mark = dict([self._new.mark]) if self._new.mark else {}
            names = {field.name: field.written for field in self._new.fields}
            return mark | {names[name]: value for name, value in fields.items()}
        return [*self._head(value), *self._array(fields)]

    def _values(self, value: Any) -> dict[str, Any]:
        """Return the values of the fields that both schemas have, by name."""
        old, parts = self._old, self.parts
        if old.layout is Layout.MAP:
            written = [f for f in old.fields if f.name in parts and f.written in value]
            return {field.name: value[field.written] for field in written}
        head = 1 if old.layout is Layout.ROW or old.mark else 0
        pairs = zip(old.fields, value[head:], strict=False)
        return {field.name: item for field, item in pairs if field.name in parts}

    def _head(self, value: Any) -> list[Any]:
        """Return the items before the fields in an array: the kind of a row, or the mark."""
        if self._new.layout is Layout.ROW:
            return [value[0] if self._old.layout is Layout.ROW else 0]
        return [self._new.mark[1]] if self._new.mark else []

    def _array(self, fields: dict[str, Any]) -> list[Any]:
        """Return the fields in order, up to the first whose default only the class can create."""
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
    """Return the record that is referred to, and the records that enclose it."""
    place = len(around) - reference.up
    return around[place], around[:place]


def _referred(schema: Schema, around: _Around) -> Schema:
    return _resolve(schema, around)[0] if isinstance(schema, Reference) else schema


def _mark(schema: Schema) -> str | int | None:
    """Return the mark that distinguishes a record from the other options of a union."""
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
    of_key, of_value = key or same, value or same
    return lambda entries: {of_key(k): of_value(v) for k, v in entries.items()}


def _items(parts: list[Upgrade]) -> Upgrade:
    if not any(parts):
        return None
    each = [part or same for part in parts]
    return lambda values: tuple([f(value) for f, value in zip(each, values, strict=True)])


def _enumeration(old: Enumeration, new: Enumeration) -> Upgrade:
    gone = [value for value in old.values if value not in new.values]
    if gone:
        raise Incompatible(
            f"{new.name} no longer has the value {', '.join(map(repr, gone))}, which may have been "
            "saved; keep the member"
        )
    return None


def _custom(old: CustomSchema, new: CustomSchema) -> Upgrade:
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
