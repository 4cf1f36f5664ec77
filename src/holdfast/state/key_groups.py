"""Key groups: the assignment of keys to subtasks.

The key group of a key is its hash, mixed by the last steps of MurmurHash3, modulo the max
parallelism. (A crc32 alone puts ``k0`` to ``k9`` into one half of the key groups.) A subtask owns a
contiguous range of key groups. State files are grouped by key group, so the hash is part of the
saved format: **it must never change** between processes, machines or versions of Python.

    texts           crc32 of UTF-8
    bytes           crc32
    numbers         Python's own hash of numbers, mixed. It is the same on every 64-bit platform,
                    and the same for all numbers that are equal: 1, 1.0, True, Decimal(1)
    tuples          crc32 of the hashes of the parts
    objects         crc32 of the class's name and the hashes of the parts that ``__eq__`` compares

Keys that are equal in Python have equal hashes. An object whose ``__eq__`` ignores some of its
fields can be a key only if it is a dataclass with ``field(compare=False)``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain
from numbers import Number
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.common.types import Row

DEFAULT_MAX_PARALLELISM: Final = 128
#: the largest max parallelism
MOST_KEY_GROUPS: Final = 1 << 15

#: how many keys a router caches, and how many of those whose hashes can be computed as an array:
#: computing these is faster than looking them up in a dict that exceeds the processor's cache
_ROUTER_LIMIT: Final = 1 << 18
_QUICK_LIMIT: Final = 1 << 14
#: keys whose hashes are computed as one array: few enough to fit in the processor's cache
_AT_ONCE: Final = 4096
#: for fewer keys than this, hashes are computed one by one: arrays would take longer
_FEW: Final = 16
_MASK: Final = (1 << 64) - 1
#: 2**64 divided by the golden ratio: neighbouring numbers get distant hashes
_MIX: Final = 0x9E3779B97F4A7C15
_SHIFT: Final = 33
_MASK_32: Final = (1 << 32) - 1
_MURMUR_1: Final = 0x85EBCA6B
_MURMUR_2: Final = 0xC2B2AE35
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)

if sys.hash_info.modulus != (1 << 61) - 1:  # pragma: no cover
    message = "Holdfast needs a 64-bit Python: the hashes of numbers differ in this one"
    raise ImportError(message)


def key_hash(key: Any) -> int:
    """Return the stable hash of a key, a number of at most 32 bits.

    Raise a TypeError with a remedy if the key cannot have one.
    """
    known = _HASHES.get(type(key))
    return known(key) if known is not None else _hash_other(key)


def key_group(key: Any, max_parallelism: int) -> int:
    """Return the key group of a key."""
    mixed = key_hash(key)
    mixed = (mixed ^ mixed >> 16) * _MURMUR_1 & _MASK_32
    mixed = (mixed ^ mixed >> 13) * _MURMUR_2 & _MASK_32
    return (mixed ^ mixed >> 16) % max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups that a subtask owns; each key group has exactly one owner."""
    _check_parallelism(parallelism, max_parallelism)
    if not 0 <= subtask < parallelism:
        message = f"subtask must be in 0..{parallelism - 1}; got {subtask}"
        raise ValueError(message)
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism - 1) // parallelism
    return range(start, end + 1)


class KeyGroupShare(NamedTuple):
    """The key groups of one subtask, and how many there are in all."""

    key_groups: range
    max_parallelism: int


class KeyGroupShares:
    """The key groups of one subtask of a level, by operator."""

    def __init__(self, default: KeyGroupShare) -> None:
        """Start with the same share for every operator."""
        self._default = default
        self._assigned: dict[str, KeyGroupShare] = {}

    def assign(self, operator: str, share: KeyGroupShare) -> None:
        """Set the key groups of an operator."""
        self._assigned[operator] = share

    def of(self, operator: str) -> KeyGroupShare:
        """Return the key groups of an operator."""
        return self._assigned.get(operator, self._default)


def subtask_of(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return key_group * parallelism // max_parallelism


def key_groups_of(keys: Sequence[Any], max_parallelism: int) -> npt.NDArray[np.uint16]:
    """Return the key group of each key; fast if all are strings, integers, or tuples of these."""
    parts = [_hashes(keys[at : at + _AT_ONCE]) for at in range(0, len(keys), _AT_ONCE)]
    return key_group_of_hashes(
        np.concatenate(parts) if parts else np.zeros(0, np.uint32), max_parallelism
    )


def key_group_of_hashes(
    hashes: npt.NDArray[np.uint32], max_parallelism: int
) -> npt.NDArray[np.uint16]:
    """Return the key group of each key, given the hashes of the keys."""
    mixed = (hashes ^ hashes >> np.uint32(16)) * np.uint32(_MURMUR_1)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(_MURMUR_2)
    mixed = mixed ^ mixed >> np.uint32(16)
    return (mixed % np.uint32(max_parallelism)).astype(np.uint16)


def subtask_of_groups(
    groups: npt.NDArray[np.uint16], parallelism: int, max_parallelism: int
) -> npt.NDArray[np.uint16]:
    """Return the subtask that owns each key group."""
    return (groups.astype(np.uint32) * parallelism // max_parallelism).astype(np.uint16)


class KeyRouter:
    """Determines the target subtask of each key, for many keys at once.

    The results are cached as long as there are few keys. For many keys it is faster to compute them
    as an array than to look them up.

    ``check`` is called with new keys, or with all keys when there are too many to remember. It
    raises an error if one of them cannot be used.
    """

    def __init__(
        self,
        parallelism: int,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        check: Callable[[Iterable[Any]], object] | None = None,
    ) -> None:
        _check_parallelism(parallelism, max_parallelism)
        self._check = check
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._known: dict[Any, int] | None = {}

    def targets(self, keys: Sequence[Any]) -> list[int]:
        """Return the subtask of each key; raise a TypeError if one of them cannot be a key."""
        known = self._known
        if known is not None:
            try:
                return list(map(known.__getitem__, keys))
            except KeyError:
                self._learn(set(keys), known)
        if self._known is None:
            if self._check is not None:
                self._check(keys)
            return self._computed(keys)
        return list(map(self._known.__getitem__, keys))

    def _learn(self, keys: set[Any], known: dict[Any, int]) -> None:
        new = list(keys.difference(known))
        count = len(known) + len(new)
        if count > _QUICK_LIMIT and all(type(key) in _QUICK for key in keys):
            self._known = None
            return
        if count > _ROUTER_LIMIT:
            known.clear()
            new = list(keys)
        if self._check is not None:
            self._check(new)
        known.update(zip(new, self._computed(new), strict=True))

    def _computed(self, keys: Sequence[Any]) -> list[int]:
        every, ours = self._max_parallelism, self._parallelism
        if len(keys) < _FEW:
            return [subtask_of(key_group(key, every), ours, every) for key in keys]
        return subtask_of_groups(key_groups_of(keys, every), ours, every).tolist()  # type: ignore[no-any-return]


def unusable_key(key: Any) -> TypeError | None:
    """Return an error with the reason why a key cannot be used, and a remedy; None if it can."""
    try:
        key_hash(key)
    except TypeError as error:
        return error
    try:
        hash(key)
    except TypeError:
        return _unhashable(key)
    return None


def _check_parallelism(parallelism: int, max_parallelism: int) -> None:
    if not 1 <= parallelism <= max_parallelism <= MOST_KEY_GROUPS:
        message = (
            "parallelism must be at least 1 and at most the max parallelism, and that at most "
            f"32768; got parallelism {parallelism} and max parallelism {max_parallelism}"
        )
        raise ValueError(message)


def _hashes(keys: Sequence[Any], kinds: set[type] | None = None) -> npt.NDArray[np.uint32]:
    kinds = kinds or set(map(type, keys))
    if kinds == {str}:
        with contextlib.suppress(UnicodeEncodeError):
            return _from(map(crc32, map(str.encode, keys)), len(keys))
    if kinds == {int}:
        return _hashes_of_integers(keys)
    if kinds == {tuple} and len(set(map(len, keys))) == 1 and keys[0]:
        return hashes_of_rows(_hashes_of_parts(list(chain.from_iterable(keys)), len(keys[0])))
    return _from(map(key_hash, keys), len(keys))


def _hashes_of_integers(keys: Sequence[int]) -> npt.NDArray[np.uint32]:
    numbers: npt.NDArray[np.int64] | None = None
    with contextlib.suppress(OverflowError):
        numbers = np.array(keys, np.int64)
    # NB: numbers in this range are their own hashes
    if numbers is None or numbers.min() < 0 or numbers.max() >= sys.hash_info.modulus:
        numbers = np.fromiter(map(hash, keys), np.int64, len(keys))
    return hashes_of_numbers(numbers)


def hashes_of_numbers(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the hashes of numbers, given Python's own."""
    return ((hashes.view(np.uint64) * np.uint64(_MIX)) >> np.uint64(_SHIFT)).astype(np.uint32)


def _hashes_of_parts(parts: list[Any], width: int) -> list[npt.NDArray[np.uint32]]:
    """Return the hashes of the parts of tuples, by position; ``parts`` is a flat list of them."""
    kinds = set(map(type, parts))
    if len(kinds) == 1:
        hashes = _hashes(parts, kinds)
        return [hashes[place::width] for place in range(width)]
    return [_hashes(parts[place::width]) for place in range(width)]


def hashes_of_rows(columns: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    """Return the hashes of tuples, given the hashes of their parts."""
    checksum = np.full(len(columns[0]), _MASK_32, np.uint32)
    for column in columns:
        for _ in range(2):
            checksum ^= column & np.uint32(0xFFFF)
            checksum = _CRC_OF_PAIR[checksum & np.uint32(0xFFFF)] ^ checksum >> np.uint32(16)
            column = column >> np.uint32(16)
    return ~checksum


def _crc_of_pairs() -> npt.NDArray[np.uint32]:
    """Return a table to compute zlib's crc32 two bytes at a time."""
    table = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(16):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    return table.astype(np.uint32)


_CRC_OF_PAIR: Final = _crc_of_pairs()
#: types of keys whose hashes can be computed as an array
_QUICK: Final = frozenset({str, int, tuple})


def _from(hashes: Iterable[int], count: int) -> npt.NDArray[np.uint32]:
    return np.fromiter(hashes, np.uint32, count)


def _hash_text(key: str) -> int:
    try:
        return crc32(key.encode())
    except UnicodeEncodeError:
        return crc32(key.encode("utf-8", "surrogatepass"))


def _hash_number(key: Any) -> int:
    return (hash(key) * _MIX & _MASK) >> _SHIFT if key == key else 0


def _hash_parts(key: Iterable[Any]) -> int:
    parts = [key_hash(part) for part in key]
    return crc32(_packer(len(parts))(*parts))


@lru_cache
def _packer(count: int) -> Callable[..., bytes]:
    return Struct(f"<{count}I").pack


def _hash_unordered(key: Iterable[Any]) -> int:
    parts = [_hash_number(key_hash(part)) for part in key]
    return _hash_number(sum(parts) + len(parts))


def _hash_datetime(key: datetime.datetime) -> int:
    if key.utcoffset() is None:
        return crc32(key.replace(tzinfo=None, fold=0).isoformat().encode())
    return _hash_number((key - _EPOCH) // _MICROSECOND)


def _hash_time(key: datetime.time) -> int:
    micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
    offset = key.utcoffset()
    return _hash_number(micros if offset is None else micros - offset // _MICROSECOND)


def _hash_row(key: Row) -> int:
    names = getattr(key, "_fields", None)
    if names is None:
        return _hash_parts(key)
    return _hash_unordered(zip(names, key, strict=False))


def _hash_named(key: Any, parts: Iterable[Any]) -> int:
    return crc32(type(key).__qualname__.encode(), _hash_parts(parts))


#: by exact type of the key; other types are added by `_hash_other` when they first occur
_HASHES: Final[dict[type, Callable[[Any], int]]] = {
    str: _hash_text,
    int: _hash_number,
    float: _hash_number,
    bool: _hash_number,
    bytes: crc32,
    type(None): lambda key: 0x6E6F6E65,
    tuple: _hash_parts,
    frozenset: _hash_unordered,
}

_BY_BASE: Final[tuple[tuple[type, Callable[[Any], int]], ...]] = (
    (str, _hash_text),
    (Number, _hash_number),
    (bytes, crc32),
    (tuple, _hash_parts),
    (frozenset, _hash_unordered),
    (Enum, lambda key: _hash_named(key, [key.name])),
    (datetime.datetime, _hash_datetime),
    (datetime.date, lambda key: crc32(key.isoformat().encode())),
    (datetime.time, _hash_time),
    (datetime.timedelta, lambda key: _hash_number(key // _MICROSECOND)),
    (uuid.UUID, lambda key: crc32(key.bytes)),
    (Row, _hash_row),
)


def _hash_other(key: Any) -> int:
    function = _function_for(type(key), key)
    _HASHES[type(key)] = function
    return function(key)


def _function_for(cls: type, key: Any) -> Callable[[Any], int]:
    for base, function in _BY_BASE:
        if issubclass(cls, base):
            return function
    if cls.__hash__ is None:
        raise _unhashable(key)
    equality: Any = cls.__eq__
    if equality is object.__eq__:
        raise _has_identity(key)
    if dataclasses.is_dataclass(cls):
        names = [f.name for f in dataclasses.fields(cls) if f.compare]
        return lambda key: _hash_named(key, [getattr(key, name) for name in names])
    if issubclass(cls, msgspec.Struct):
        fields = cls.__struct_fields__
        return lambda key: _hash_named(key, [getattr(key, name) for name in fields])
    return _hash_object


def _hash_object(key: Any) -> int:
    state = key.__getstate__()
    parts = state if isinstance(state, tuple) else (state,)
    return _hash_named(key, [_stable(part) for part in parts])


def _stable(state: Any) -> Any:
    # The order in which attributes were set does not matter.
    if isinstance(state, dict):
        return tuple(sorted(state.items(), key=lambda item: str(item[0])))
    return state


def _unhashable(key: Any) -> TypeError:
    cls = type(key).__name__
    remedy = {
        "list": "declare its type, as in key_by(selector, Types.LIST(Types.STRING())), or return "
        "tuple(...) from the key selector",
        "set": "return frozenset(...) from the key selector",
        "dict": "return tuple(sorted(d.items())) or one of its values from the key selector",
        "bytearray": "return bytes(...) from the key selector",
    }.get(cls, f"make {cls} immutable (a frozen dataclass, a NamedTuple), or return one field")
    return TypeError(f"a {cls} cannot be a key, because it is not hashable: {key!r}; {remedy}")


def _has_identity(key: Any) -> TypeError:
    cls = type(key).__name__
    return TypeError(
        f"a {cls} cannot be a key, because it equals only itself and a copy in another process "
        f"would be another key: {key!r}; give {cls} __eq__ and __hash__ (a frozen dataclass, a "
        "NamedTuple), or return one of its fields from the key selector"
    )
