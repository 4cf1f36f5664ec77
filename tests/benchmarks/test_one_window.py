"""What is kept of very many records in one window."""

from __future__ import annotations

from benchmarks.own.window_job import one_window
from holdfast.common import WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.testing import LocalExecutor, MemoryStateStorage

RECORDS = 300_000
EPOCHS = 6


def test_a_window_keeps_its_accumulator_and_nothing_else() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    source = NumberSequenceSource(0, RECORDS - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    with LocalExecutor(one_window(numbers), quota=RECORDS // EPOCHS) as run:
        assert isinstance(run.storage, MemoryStateStorage)
        kept = []
        while not run.finished:
            run.epoch()
            kept.append(max(map(len, run.storage.files.values())))
        assert run.records == [(RECORDS, RECORDS * (RECORDS - 1) // 2)]
    assert len(kept) > EPOCHS - 1
    assert max(kept) < 1500
