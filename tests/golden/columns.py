"""State in columns for the golden files: types of keys and values, namespaces, time-to-live.

``python -m tests.golden.columns`` writes them anew. Run it only if the format was changed on
purpose before a release.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from holdfast.common import Time
from holdfast.datastream.state import ColumnStateDescriptor, StateTtlConfig
from holdfast.state.backend import DirectoryStateStorage, Head, HeapKeyedStateBackend
from holdfast.state.key_groups import KeyGroupShare

FILES: Final = Path(__file__).parent / "column_files"
HEAD: Final = "head.json"
MOST: Final = 8
NOON: Final = datetime(2026, 11, 18, 12, tzinfo=UTC)


def _expiring() -> ColumnStateDescriptor:
    descriptor = ColumnStateDescriptor("expiring", pa.float64())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1000)).build())
    return descriptor


#: by operator: the columns of its keys, whether its states have namespaces, and its states
OPERATORS: Final[dict[str, tuple[pa.Array, bool, list[ColumnStateDescriptor]]]] = {
    "numbers": (
        pa.array([1, -2, 2**62], pa.int64()),
        False,
        [
            ColumnStateDescriptor("total", pa.int64(), default=0),
            ColumnStateDescriptor("ratio", pa.float32()),
            ColumnStateDescriptor("at", pa.timestamp("ms", "UTC")),
            _expiring(),
        ],
    ),
    "texts": (
        pa.array(["", "a", "é" * 20]),
        True,
        [
            ColumnStateDescriptor("name", pa.string()),
            ColumnStateDescriptor("price", pa.decimal128(10, 2)),
            ColumnStateDescriptor("parts", pa.list_(pa.struct([("x", pa.int8())]))),
        ],
    ),
    "pairs": (
        pa.StructArray.from_arrays(
            [
                pa.array(["a", "a", "b"]),
                pa.array([NOON, None, NOON]).fill_null(NOON.replace(hour=1)),
            ],
            ["name", "at"],
        ),
        False,
        [ColumnStateDescriptor("flag", pa.bool_())],
    ),
}
#: by state: the values of the three keys
VALUES: Final[dict[str, list[Any]]] = {
    "total": [1, -(2**63), 2**63 - 1],
    "ratio": [0.5, -1.5, 0.25],
    "at": [NOON, NOON.replace(year=1970), NOON],
    "expiring": [1.0, 2.0, 3.0],
    "name": ["", "b", "ü"],
    "price": [Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99")],
    "parts": [[], [{"x": 1}], [{"x": 2}, {"x": None}]],
    "flag": [True, False, True],
}


def backend() -> HeapKeyedStateBackend:
    """Return a backend for the operators, whose states are not declared yet."""
    made = HeapKeyedStateBackend(range(MOST), MOST)
    made.use_clock(lambda: 1_000)
    for operator in OPERATORS:
        made.shares.assign(operator, KeyGroupShare(range(MOST), MOST))
    return made


def write(directory: Path) -> None:
    """Write a base with all values, and a delta in which the second key has none."""
    storage, made = DirectoryStateStorage(directory), backend()
    head = Head()
    for epoch in (1, 2):
        for operator, (keys, namespaced, descriptors) in OPERATORS.items():
            spaces = pa.array([0, 60, 0]) if namespaced else None
            found = made.columns.of(operator, namespaced).keys(keys, spaces)
            for descriptor in descriptors:
                state = made.column_state(operator, descriptor, namespaced)
                if epoch == 1:
                    state.put(found, pa.array(VALUES[descriptor.name], descriptor.arrow_type))
                else:
                    state.clear(found.take(pa.array([1])))
        head = made.persist(storage, f"golden-{epoch}", epoch)
    (directory / HEAD).write_bytes(msgspec.json.encode(head))


if __name__ == "__main__":
    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir()
    write(FILES)
