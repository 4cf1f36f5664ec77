"""Blocks as rows of Spark: ``target`` is the partition of the next stage that a row goes to.

Row: ``target int, head binary, data binary``; head is the block's header. A stage reads and writes
Arrow batches of a few rows, so no side ever holds an epoch in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from holdfast.plan.model import Plan
from holdfast.runtime.wire.blocks import Block, decode_header, encode_header

ROW_SCHEMA = "target int, head binary, data binary"
_ARROW_SCHEMA = pa.schema([("target", pa.int32()), ("head", pa.binary()), ("data", pa.binary())])
_BATCH_BLOCKS = 256

#: The size of an Arrow batch, in both directions.
BATCH_BYTES = 4 * 1024 * 1024


def from_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
    """Yield the blocks in Arrow batches."""
    for batch in batches:
        heads = batch.column(1)
        data = batch.column(2)
        for row in range(batch.num_rows):
            yield Block(decode_header(heads[row].as_buffer()), memoryview(data[row].as_buffer()))


def to_batches(plan: Plan, level: int, blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """Yield the blocks that leave a level, as Arrow batches of bounded size."""
    width = _width_after(plan, level)
    pending: list[Block] = []
    size = 0
    for block in blocks:
        pending.append(block)
        size += len(block.data)
        if size >= BATCH_BYTES or len(pending) >= _BATCH_BLOCKS:
            yield _to_batch(pending, width, level + 1)
            pending, size = [], 0
    if pending:
        yield _to_batch(pending, width, level + 1)


def _width_after(plan: Plan, level: int) -> int:
    following = level + 1
    return plan.levels[following].parallelism if following < plan.driver_level else 1


def _to_batch(blocks: list[Block], width: int, next_level: int) -> pa.RecordBatch:
    """Return a batch; blocks for later levels are forwarded by a subtask of the next level."""
    targets = [
        block.header.subtask if block.header.level == next_level else block.header.subtask % width
        for block in blocks
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(targets, pa.int32()),
            pa.array([encode_header(block.header) for block in blocks], pa.binary()),
            pa.array([block.data for block in blocks], pa.binary()),
        ],
        schema=_ARROW_SCHEMA,
    )
