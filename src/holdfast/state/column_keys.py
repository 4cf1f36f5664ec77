"""Key groups of keys in Arrow columns, without a Python object per key.

They are those that `holdfast.state.key_groups` gives the same keys as Python values. Integers and
texts are hashed as whole arrays. Of all other types, the distinct values become Python objects.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.key_groups import (
    hashes_of_numbers,
    hashes_of_rows,
    key_group_of_hashes,
    key_hash,
    subtask_of_groups,
)

_Hashes = npt.NDArray[np.uint32]
_MODULUS: Final = sys.hash_info.modulus
#: texts that are longer than this are hashed one by one: few are, and their hashes take long anyway
_LONGEST: Final = 48


def column_targets(
    keys: pa.Array, parallelism: int, max_parallelism: int
) -> npt.NDArray[np.uint16]:
    """Return the subtask of each key."""
    return subtask_of_groups(column_key_groups(keys, max_parallelism), parallelism, max_parallelism)


def column_key_groups(keys: pa.Array, max_parallelism: int) -> npt.NDArray[np.uint16]:
    """Return the key group of each key; a struct is the key of several columns, a tuple."""
    return key_group_of_hashes(column_hashes(keys), max_parallelism)


def column_hashes(keys: pa.Array) -> _Hashes:
    """Return the stable hash of each key; see `holdfast.state.key_groups.key_hash`."""
    kind = keys.type
    if pa.types.is_dictionary(kind):
        return _distinct_hashes(keys)
    if pa.types.is_struct(kind):
        if keys.null_count == 0 and kind.num_fields:
            return hashes_of_rows([column_hashes(part) for part in keys.flatten()])
        return _one_by_one(keys)
    if keys.null_count:
        return _with_nulls(keys)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return hashes_of_numbers(_hashes_of_integers(keys.to_numpy().astype(np.int64)))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hashes_of_texts(keys)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return _one_by_one(keys)
    return _distinct_hashes(keys.dictionary_encode())


def python_keys(keys: pa.Array) -> list[Any]:
    """Return keys as the record-wise path has them: of several columns, tuples."""
    if not pa.types.is_struct(keys.type):
        return keys.to_pylist()  # type: ignore[no-any-return]
    if not keys.type.num_fields:
        return [()] * len(keys)
    return list(zip(*(part.to_pylist() for part in keys.flatten()), strict=True))


def key_array(keys: list[Any], type_: pa.DataType | None) -> pa.Array:
    """Return Python keys as an array of a type; None: of the type that they have."""
    if type_ is None and not isinstance(keys[0], tuple):
        return pa.array(keys)
    if type_ is None:
        parts = [pa.array(part) for part in zip(*keys, strict=True)]
        return pa.StructArray.from_arrays(parts, [f"f{place}" for place in range(len(parts))])
    if not pa.types.is_struct(type_):
        return pa.array(keys, type_)
    pairs = zip(zip(*keys, strict=True), type_, strict=True)
    return pa.StructArray.from_arrays(
        [pa.array(part, field.type) for part, field in pairs], fields=list(type_)
    )


def _with_nulls(keys: pa.Array) -> _Hashes:
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    hashes = np.full(len(keys), key_hash(None), np.uint32)
    hashes[valid] = column_hashes(pc.drop_null(keys))
    return hashes


def _one_by_one(keys: pa.Array) -> _Hashes:
    return np.fromiter(map(key_hash, python_keys(keys)), np.uint32, len(keys))


def _distinct_hashes(keys: pa.DictionaryArray) -> _Hashes:
    """Hash the distinct values, and look up the hash of each key."""
    if keys.indices.null_count:
        return _with_nulls(keys)
    if pa.types.is_string(keys.dictionary.type):
        known = column_hashes(keys.dictionary)
    else:
        known = _one_by_one(keys.dictionary)
    return known[keys.indices.to_numpy()] if len(known) else np.zeros(0, np.uint32)


def _hashes_of_integers(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return Python's own hash of integers."""
    if not len(numbers) or (numbers.min() >= 0 and numbers.max() < _MODULUS):
        return numbers  # they are their own hashes
    # NB: C's remainder has the sign of the number, as Python's hash has
    hashes = np.fmod(numbers, np.int64(_MODULUS))
    return np.where(hashes == -1, np.int64(-2), hashes)


def _hashes_of_texts(keys: pa.Array) -> _Hashes:
    """Return the crc32 of the bytes of each text, a byte of all of them at a time."""
    _, offset_buffer, data = keys.buffers()
    count = len(keys)
    if not count:
        return np.zeros(0, np.uint32)
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, keys.offset * 4)
    sizes = np.diff(offsets)
    longest = int(sizes.max())
    if longest > _LONGEST:
        return _one_by_one(keys)
    bytes_of = np.frombuffer(data, np.uint8) if data is not None and len(data) else _NO_BYTES
    return _checksums(bytes_of, offsets[:-1], sizes, longest)


def _checksums(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int32],
    longest: int,
) -> _Hashes:
    checksums = np.full(len(sizes), 0xFFFFFFFF, np.uint32)
    if longest and int(sizes.min()) == longest:  # all texts have the same length
        for place in range(longest):
            checksums = _step(checksums, data[starts + place])
        return ~checksums
    order = np.argsort(sizes.astype(np.uint8), kind="stable")
    starts, ends = starts[order], np.searchsorted(sizes[order], np.arange(longest), side="right")
    for place in range(longest):
        left = slice(int(ends[place]), None)  # the texts that have a byte at this place
        checksums[left] = _step(checksums[left], data[starts[left] + place])
    found = np.empty_like(checksums)
    found[order] = ~checksums
    return found


def _step(checksums: _Hashes, byte: npt.NDArray[np.uint8]) -> _Hashes:
    found: _Hashes = _CRC[(checksums ^ byte) & np.uint32(0xFF)] ^ (checksums >> np.uint32(8))
    return found


def _crc_table() -> _Hashes:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    return table.astype(np.uint32)


_CRC: Final = _crc_table()
_NO_BYTES: Final = np.zeros(1, np.uint8)
