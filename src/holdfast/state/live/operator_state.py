"""Operator state, which belongs to a subtask and not to a key: lists, broadcast maps, raw bytes.

A subtask's operator state is saved as an image: by state name, the redistribution mode and the
elements, each encoded separately. So a restore can distribute the elements to another number of
subtasks without the user's classes:

    SPLIT      every subtask gets a contiguous, even share of all elements; if the number of
               subtasks is the same as before, each keeps its own elements
    UNION      every subtask gets all elements
    BROADCAST  every subtask gets the elements of the first subtask, since all have the same
"""

from __future__ import annotations

from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from typing import Any, Final, NoReturn

import msgspec

from holdfast.common.typeinfo import TupleTypeInfo, TypeInformation
from holdfast.state.descriptors import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from holdfast.state.errors import (
    StateMigrationError,
    StateRegistrationError,
    StateTypeError,
    decoding,
)
from holdfast.state.format.catalog import SavedState
from holdfast.state.live.mutations import SAVE_OR_COPY, MutationWatch, ValuePlace, WatchedState
from holdfast.state.live.sections import unreadable
from holdfast.state.names import StateId
from holdfast.state.types.schema import Schema, check_schema
from holdfast.state.types.serializers import Codec, EncodedColumn, Serializer

SPLIT: Final = "split"
UNION: Final = "union"
BROADCAST: Final = "broadcast"

#: by redistribution mode: the kind of the state's descriptor
MODES: Final = {SPLIT: "list", UNION: "list", BROADCAST: "map"}

#: the name under which raw bytes are stored; no state of a user can have it
_RAW: Final = ""


#: the codec of an element, its bytes, and the index of its schema
Element = tuple[int, bytes, int]


class ListImage(msgspec.Struct, frozen=True, array_like=True):
    """The elements of one state in one subtask.

    Attributes:
        schemas: the schemas of the elements; None if no type was declared.
    """

    mode: str
    elements: tuple[Element, ...] = ()
    schemas: tuple[Schema | None, ...] = ()

    @property
    def pickled(self) -> bool:
        """Return whether any element is pickled."""
        return any(codec == Codec.PICKLE for codec, _, _ in self.elements)


#: the operator state of one operator in one subtask, by state name
Image = Mapping[str, ListImage]

encode_image = msgspec.msgpack.Encoder().encode
_decode_image: Final = msgspec.msgpack.Decoder(dict[str, ListImage]).decode


def decode_image(data: bytes | memoryview, operator: str) -> dict[str, ListImage]:
    """Return the operator state of an operator in one subtask.

    Raises:
        StateCorruptionError: if the bytes are not an encoded image.
    """
    with decoding(f"the operator state of operator {operator!r}"):
        image = _decode_image(data)
        for name, part in image.items():
            _check_part(name, part)
        return image


def _check_part(name: str, part: ListImage) -> None:
    places, codecs = range(len(part.schemas)), set(Codec)
    if part.mode not in MODES or not all(
        codec in codecs and place in places for codec, _, place in part.elements
    ):
        message = f"state {name!r} has an unknown mode, or an element with an unknown codec or type"
        raise ValueError(message)
    for schema in part.schemas:
        check_schema(schema)


def redistribute(images: Sequence[Image], parallelism: int) -> list[dict[str, ListImage]]:
    """Redistribute the images of the old subtasks, in their order, to the new ones."""
    dealt: list[dict[str, ListImage]] = [{} for _ in range(parallelism)]
    for name in sorted({name for image in images for name in image}):
        mode = next(image[name].mode for image in images if name in image)
        parts = [image.get(name, ListImage(mode)) for image in images]
        for subtask, share in enumerate(_shares(mode, parts, parallelism)):
            dealt[subtask][name] = share
    return dealt


def _shares(mode: str, parts: Sequence[ListImage], parallelism: int) -> Iterator[ListImage]:
    everything, schemas = _joined(parts)
    for subtask in range(parallelism):
        if mode == UNION:
            yield ListImage(mode, everything, schemas)
        elif mode == BROADCAST:
            yield parts[0]
        elif parallelism == len(parts):
            yield parts[subtask]
        else:
            first = len(everything) * subtask // parallelism
            last = len(everything) * (subtask + 1) // parallelism
            yield ListImage(mode, everything[first:last], schemas)


def _joined(parts: Sequence[ListImage]) -> tuple[tuple[Element, ...], tuple[Schema | None, ...]]:
    """Return the elements of all parts, and the schemas that they refer to."""
    schemas: list[Schema | None] = []
    elements: list[Element] = []
    for part in parts:
        schemas += [schema for schema in part.schemas if schema not in schemas]
        places = [schemas.index(schema) for schema in part.schemas]
        elements += [(codec, data, places[place]) for codec, data, place in part.elements]
    return tuple(elements), tuple(schemas)


def saved_states(image: Image) -> list[SavedState]:
    """Return the states of an image for the metadata of a checkpoint, one per type."""
    return [
        SavedState(name, part.mode, (schema,), pickled=part.pickled)
        for name, part in image.items()
        if name != _RAW
        for schema in part.schemas
    ]


class OperatorStateBackend(OperatorStateStore):
    """The operator states of one operator in one subtask."""

    def __init__(
        self, operator: str, restored: Image | None = None, watch: MutationWatch | None = None
    ) -> None:
        """Create the states from the image that was restored for this subtask.

        ``watch`` tracks the values of broadcast states. Lists need no watch: all of their elements
        are encoded in every epoch, so an in-place change is always saved.
        """
        self.operator = operator
        self._watch = watch
        self._restored = dict(restored or {})
        self._states: dict[str, _OperatorList | _OperatorMap] = {}
        self.raw_inputs: tuple[bytes, ...] = self._take_raw()
        #: the raw bytes that ``snapshot_state`` has written
        self.raw_output = b""

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose elements a restore splits among the subtasks."""
        return self._list(state_descriptor, SPLIT)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list that a restore gives to every subtask in full."""
        return self._list(state_descriptor, UNION)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that is the same in all subtasks."""
        state = self._get(state_descriptor, BROADCAST)
        if state is None:
            state = self._new_map(state_descriptor)
            self._add(state)
        assert isinstance(state, _OperatorMap)
        return state

    def load(self, image: Image) -> None:
        """Replace all states by those of another image; handles in functions remain valid."""
        self._restored = {name: part for name, part in image.items() if name not in self._states}
        for name, state in self._states.items():
            state.load(image.get(name))
        self.raw_inputs = self._take_raw()

    @property
    def used(self) -> bool:
        """Return whether there is anything to save."""
        return bool(self._states or self._restored or self.raw_output)

    def image(self) -> dict[str, ListImage]:
        """Return all states, including restored ones that the job has not used."""
        image = dict(self._restored)
        for name, state in self._states.items():
            image[name] = state.image()
        if self.raw_output:
            image[_RAW] = ListImage(SPLIT, ((Codec.PLAIN, self.raw_output, 0),), (None,))
        return image

    def reference(self, handle: object) -> tuple[str, Any] | None:
        """Return a reference to a handle of this store that is valid in other processes."""
        for state in self._states.values():
            if state is handle:
                return state.mode, state.descriptor
        return None

    def by_reference(self, mode: str, descriptor: Any) -> Any:
        """Return the state of a reference."""
        if mode == BROADCAST:
            return self.get_broadcast_state(descriptor)
        return self._list(descriptor, mode)

    def _new_map(self, descriptor: MapStateDescriptor) -> _OperatorMap:
        if self._watch is None:
            return _OperatorMap(self.operator, descriptor)
        return _WatchedMap(self.operator, descriptor, self._watch)

    def _list(self, descriptor: ListStateDescriptor, mode: str) -> ListState[Any]:
        state = self._get(descriptor, mode)
        if state is None:
            state = _OperatorList(self.operator, descriptor, mode)
            self._add(state)
        assert isinstance(state, _OperatorList)
        return state

    def _add(self, state: _OperatorList | _OperatorMap) -> None:
        name = state.descriptor.name
        state.load(self._restored.get(name))
        self._restored.pop(name, None)
        self._states[name] = state

    def _get(self, descriptor: StateDescriptor, mode: str) -> _OperatorList | _OperatorMap | None:
        name = descriptor.name
        if descriptor.ttl_config is not None:
            raise StateRegistrationError(
                f"the operator state '{name}' of operator '{self.operator}' has a time-to-live, "
                "which only keyed state can have; leave enable_time_to_live out"
            )
        # NB: do not use `or` here: a map without entries is false
        known: Any = self._states.get(name, self._restored.get(name))
        if known is not None and known.mode != mode:
            raise StateRegistrationError(
                f"the operator state '{name}' of operator '{self.operator}' is a {known.mode} "
                f"state; this job requests it as a {mode} state; give it another name"
            )
        return self._states.get(name)

    def _take_raw(self) -> tuple[bytes, ...]:
        image = self._restored.pop(_RAW, None)
        return () if image is None else tuple(data for _, data, _ in image.elements)


class _OperatorList(ListState[Any]):
    __slots__ = ("_codec", "_elements", "descriptor", "mode")

    def __init__(self, operator: str, descriptor: ListStateDescriptor, mode: str) -> None:
        self.descriptor = descriptor
        self.mode = mode
        self._codec = _ElementCodec(operator, descriptor)
        self._elements: list[Any] = []

    def load(self, image: ListImage | None) -> None:
        self._elements = self._codec.decode(image)

    def get(self) -> list[Any]:
        return list(self._elements)

    def add(self, value: Any) -> None:
        self._elements.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._elements.extend(values)

    def update(self, values: Iterable[Any]) -> None:
        self._elements = list(values)

    def clear(self) -> None:
        self._elements = []

    def image(self) -> ListImage:
        return self._codec.encode(self.mode, self._elements)


class _OperatorMap(BroadcastState[Any, Any]):
    __slots__ = ("_codec", "_entries", "_image", "descriptor", "mode")

    def __init__(self, operator: str, descriptor: MapStateDescriptor) -> None:
        self.descriptor = descriptor
        self.mode = BROADCAST
        self._codec = _ElementCodec(operator, descriptor)
        self.load(None)

    def load(self, image: ListImage | None) -> None:
        entries = self._codec.decode(image)
        with decoding(f"broadcast state {self.descriptor.name!r}"):
            self._entries: dict[Any, Any] = dict(entries)
        #: the image that was saved last; None if there were changes since
        self._image = image

    def get(self, key: Any, default: Any = None) -> Any:
        return self._entries.get(key, default)

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> ItemsView[Any, Any]:
        return self._entries.copy().items()

    def keys(self) -> KeysView[Any]:
        return self._entries.copy().keys()

    def values(self) -> ValuesView[Any]:
        return self._entries.copy().values()

    def __len__(self) -> int:
        return len(self._entries)

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        self._image = None
        self._entries[key] = value

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        self._image = None
        self._entries.update(dict_value)

    def remove(self, key: Any) -> None:
        self._image = None
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._image = None
        self._entries.clear()

    def image(self) -> ListImage:
        if self._image is None:
            self._image = self._codec.encode(BROADCAST, list(self._entries.items()))
        return self._image


class _WatchedMap(_OperatorMap):
    """A broadcast state whose values are watched for in-place changes."""

    __slots__ = ("_place", "_watch")

    def __init__(self, operator: str, descriptor: MapStateDescriptor, watch: MutationWatch) -> None:
        super().__init__(operator, descriptor)
        serializer = Serializer(descriptor.value_type_info)
        remedy = SAVE_OR_COPY.format("pass it to put()")
        state = WatchedState(descriptor.name, "value", remedy, serializer)
        self._place = ValuePlace(state, keyed=False)
        self._watch = watch

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key, default)
        if value is not default:
            self._watch.note(self._place, value, key)
        return value

    def items(self) -> ItemsView[Any, Any]:
        items = super().items()
        for key, value in items:
            self._watch.note(self._place, value, key)
        return items

    def values(self) -> ValuesView[Any]:
        return dict(self.items()).values()

    def put(self, key: Any, value: Any) -> None:
        super().put(key, value)
        self._watch.forget_part(self._place, key)
        self._watch.note(self._place, value, key)

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        super().remove(key)
        self._watch.forget_part(self._place, key)

    def clear(self) -> None:
        super().clear()
        self._watch.forget(self._place)


class ReadOnlyMap(ReadOnlyBroadcastState[Any, Any]):
    """Read-only access to a broadcast state, for functions that must not change it."""

    __slots__ = ("_name", "_operator", "_state")

    def __init__(self, state: BroadcastState[Any, Any], name: str, operator: str) -> None:
        self._state = state
        self._name = name
        self._operator = operator

    def get(self, key: Any, default: Any = None) -> Any:
        return self._state.get(key, default)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> ItemsView[Any, Any]:
        return self._state.items()

    def keys(self) -> KeysView[Any]:
        return self._state.keys()

    def values(self) -> ValuesView[Any]:
        return self._state.values()

    def __len__(self) -> int:
        return len(self._state)

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def clear(self) -> None:
        self._refuse()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        message = (
            f"the broadcast state '{self._name}' of operator '{self._operator}' can be changed in "
            "process_broadcast_element only, so that all subtasks hold the same"
        )
        raise TypeError(message)

    put = put_all = remove = __setitem__ = __delitem__ = _refuse
    # NB: without `__ior__`, `state |= {...}` would create a new dict and leave the state unchanged
    update = pop = popitem = setdefault = __ior__ = _refuse


def element_type(descriptor: StateDescriptor) -> TypeInformation | None:
    """Return the type of one element of a list, or of one entry of a map, which is a pair."""
    if not isinstance(descriptor, MapStateDescriptor):
        return descriptor.type_info
    key, value = descriptor.declared_types
    return None if key is None or value is None else TupleTypeInfo((key, value))


class _ElementCodec:
    """Encodes and decodes the elements of one state, each separately."""

    __slots__ = ("_name", "_operator", "_serializer")

    def __init__(self, operator: str, descriptor: StateDescriptor) -> None:
        self._operator = operator
        self._name = descriptor.name
        self._serializer = Serializer(element_type(descriptor))

    def encode(self, mode: str, elements: Sequence[Any]) -> ListImage:
        serializer = self._serializer
        try:
            columns = [serializer.encode(serializer.shape([element])) for element in elements]
        except (TypeError, ValueError) as error:
            where = f"operator state {self._name!r} of operator {self._operator!r}"
            raise StateTypeError(f"{where}: {error}") from error
        written = tuple((int(codec), bytes(data), 0) for codec, data in columns)
        return ListImage(mode, written, (serializer.schema,))

    def decode(self, image: ListImage | None) -> list[Any]:
        if image is None:
            return []
        place = f"operator state {self._name!r} of operator {self._operator!r}"
        try:
            with decoding(place):
                readers = [self._serializer.reading(saved) for saved in image.schemas]
                return [
                    readers[at].decode(EncodedColumn(Codec(codec), data))[0]
                    for codec, data, at in image.elements
                ]
        except StateMigrationError as error:
            declared = (self._serializer.schema,)
            state = StateId(self._operator, self._name)
            raise unreadable(state, image.schemas, declared, error) from error
