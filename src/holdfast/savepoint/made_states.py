"""Writing entries to the state files of a new savepoint.

A state is written in parts: one file for each range of key groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from holdfast.common.typeinfo import TypeInformation
from holdfast.datastream.state import StateDescriptor
from holdfast.state.errors import PickledStateError, StateTypeError
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.files import Section, SectionChunk, StateFile, encode_file
from holdfast.state.key_groups import key_groups_of, subtask_of
from holdfast.state.live.sections import by_key_group
from holdfast.state.live.tables import Table, make_table
from holdfast.state.live.ttl.lifetime import stamped
from holdfast.state.storage.directory import StateStorage
from holdfast.state.types.harmless import holds_unknown
from holdfast.state.types.key_forms import key_form
from holdfast.state.types.plain_writing import PlainValueError, write_plain
from holdfast.state.types.schema import Opaque, Schema
from holdfast.state.types.schema_of import schema_of
from holdfast.state.types.serializers import Codec, EncodedColumn, Serializer

_UNTYPED: Final = Serializer()
#: the number of entries that are encoded at a time
_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class KeyedLayout:
    """The layout of the entries of a keyed state.

    Attributes:
        schemas: the schemas of the types that its values are saved under.
        types: the types themselves, if they are known.
    """

    operator: str
    name: str
    kind: str
    schemas: tuple[Schema | None, ...]
    types: tuple[TypeInformation | None, ...]
    max_parallelism: int
    key_type: TypeInformation | None = None
    namespaced: bool = False
    expires: bool = False

    @property
    def place(self) -> str:
        """Return a description of the state for errors."""
        return f"state {self.name!r} of operator {self.operator!r}"

    def keys(self, keys: list[Any]) -> list[Any]:
        """Return keys as in a job: plain values are converted to objects of the declared type."""
        if self.key_type is not None:
            serializer = Serializer(self.key_type)
            keys = serializer.decode(_encode(serializer.schema, serializer, keys, self.place))
        form = key_form(self.key_type)
        if form is not None:
            keys = list(map(form.freeze, keys))
        unusable = next((key for key in keys if isinstance(key, dict | list)), None)
        if unusable is not None:
            message = (
                f"{self.place}: {unusable!r} cannot be a key; declare the operator's key_type, or "
                "use several columns, which form a tuple"
            )
            raise StateTypeError(message)
        return keys

    def parts(self, keys: Sequence[Any], parts: int) -> list[int]:
        """Return the part that each key belongs to."""
        groups = key_groups_of(keys, self.max_parallelism).tolist()
        return [subtask_of(group, parts, self.max_parallelism) for group in groups]

    def dealt(self, entries: list[tuple[Any, Any]], parts: int) -> dict[int, list[tuple[Any, Any]]]:
        """Return the entries of each part."""
        if parts == 1:
            return {0: entries}
        found: dict[int, list[tuple[Any, Any]]] = {}
        keys = [place[0] if self.namespaced else place for place, _ in entries]
        for part, entry in zip(self.parts(keys, parts), entries, strict=True):
            found.setdefault(part, []).append(entry)
        return found

    def saved(self, pickled: bool) -> SavedState:
        """Return the entry of the state in a savepoint's metadata."""
        return SavedState(
            self.name, self.kind, self.schemas, self.namespaced, pickled, self.expires
        )


def layout_of(
    operator: str, descriptor: StateDescriptor, max_parallelism: int, key_type: Any = None
) -> KeyedLayout:
    """Return the layout of the state of a descriptor."""
    expires = descriptor.ttl_config is not None
    types = (stamped(descriptor) if expires else descriptor).declared_types
    return KeyedLayout(
        operator=operator,
        name=descriptor.name,
        kind=descriptor.kind,
        schemas=tuple(map(schema_of, types)),
        types=types,
        max_parallelism=max_parallelism,
        key_type=key_type,
        expires=expires,
    )


def section_of(layout: KeyedLayout, entries: dict[Any, Any]) -> Section:
    """Return entries, by key or by (key, namespace), as a section; with a time-to-live, pairs."""
    table: Table[Any] = make_table(
        layout.operator, layout.name, layout.kind, layout.types, layout.namespaced, layout.expires
    )
    can_be_empty = layout.kind not in ("list", "map")
    present = ((key, entry) for key, entry in entries.items() if entry is not None)
    table.entries.update((key, entry) for key, entry in present if entry or can_be_empty)
    ((op, keys),) = table.operations(None)
    schemas = dict(zip(map(id, table.serializers), layout.schemas, strict=True))
    chunks = []
    for first, last, part in by_key_group(keys, layout.namespaced, layout.max_parallelism):
        serializers = table.column_serializers(op)
        columns = [
            _encode(schemas.get(id(serializer)), serializer, column, layout.place)
            for serializer, column in zip(serializers, table.columns(op, part, None), strict=True)
        ]
        key_columns = zip(*part, strict=True) if layout.namespaced else [part]
        places = [_untyped(_UNTYPED, list(column), layout.place) for column in key_columns]
        encoded = [*places, *columns]
        chunks.append(SectionChunk(op, first, last, False, len(part), tuple(encoded)))
    return Section(
        layout.operator,
        layout.name,
        layout.kind,
        layout.namespaced,
        layout.schemas,
        layout.max_parallelism,
        tuple(chunks),
        layout.expires,
    )


def _encode(
    schema: Schema | None, serializer: Serializer, values: list[Any], place: str
) -> EncodedColumn:
    """Return a column of objects of the declared type, or of plain values of the schema."""
    if schema is None or isinstance(schema, Opaque):
        return _untyped(serializer, values, place)
    if serializer.type_info is not None:
        try:
            column = serializer.encode(serializer.shape(values))
            if column.codec is Codec.TYPED:
                return column
        except (TypeError, ValueError):
            pass  # they are not objects of the type, but plain values
    try:
        return write_plain(schema, values)
    except PlainValueError as error:
        raise StateTypeError(f"{place}: {error}") from None


def _untyped(serializer: Serializer, values: list[Any], place: str) -> EncodedColumn:
    column = serializer.encode(values)
    if column.codec is Codec.PICKLE and holds_unknown(column.data):
        message = (
            f"{place}: a value that was read without its class cannot be written: {values[0]!r}; "
            "read it with trusted=True, where the classes can be imported"
        )
        raise PickledStateError(message)
    return column


class WrittenPart(msgspec.Struct, frozen=True, array_like=True):
    """The state file of a part."""

    part: int
    name: str
    size: int
    entries: int
    pickled: bool


class PartWriter:
    """Writes one part of a state to one file."""

    def __init__(self, layout: KeyedLayout, part: int) -> None:
        self._layout = layout
        self._part = part
        self._keys: set[Any] = set()
        self._chunks: list[SectionChunk] = []
        self._waiting: dict[Any, Any] = {}

    def add(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Add entries.

        Raises:
            StateTypeError: if a value does not fit, or a key occurs twice.
        """
        for key, entry in entries:
            if key in self._keys:
                message = (
                    f"{self._layout.place}: the key {key!r} occurs twice; a key must have one row"
                )
                raise StateTypeError(message)
            self._keys.add(key)
            self._waiting[key] = entry
        if len(self._waiting) >= _ROWS:
            self._encode()

    def finish(self, storage: StateStorage) -> WrittenPart:
        """Write the file."""
        self._encode()
        section = replace(section_of(self._layout, {}), chunks=tuple(self._chunks))
        name = f"made-{uuid.uuid4().hex}.state"
        data = encode_file(StateFile((section,)), name)
        storage.write(name, data)
        return WrittenPart(self._part, name, len(data), len(self._keys), section.pickled)

    def _encode(self) -> None:
        self._chunks += section_of(self._layout, self._waiting).chunks
        self._waiting = {}
