"""A running job answers reads of one key's state, as of the last epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Time, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.window import TimeWindow, TumblingEventTimeWindows
from holdfast.driver import queries
from holdfast.runtime.operators.windows.contents import CONTENTS
from holdfast.savepoint import KeyedState, SavepointWriter, StateLookupError
from holdfast.state.errors import StateStorageError
from holdfast.testing import LocalExecutor
from tests.savepoint.jobs import configuration, descriptors, everything, model

KEYS = ["a", "b", 3, (1, "x")]
RECORDS = [(KEYS[n % 4], n) for n in range(48)]


def test_every_epoch_is_seen_as_it_was(tmp_path: Path) -> None:
    with LocalExecutor(everything(configuration(tmp_path), RECORDS), quota=6, workers=2) as run:
        for number in range(1, 6):
            run.epoch(checkpoint=number % 2 == 0)
            for state, values in model(RECORDS[: 6 * number]).items():
                found = {key: run.query_state("everything", state, key) for key in KEYS}
                assert found == values, state


def test_every_kind_of_state_in_rocksdb(tmp_path: Path) -> None:
    config = configuration(tmp_path, "rocksdb")
    with LocalExecutor(everything(config, RECORDS), quota=12) as run:
        run.epoch(checkpoint=True)
        run.epoch()
        for number, (state, values) in enumerate(model(RECORDS[:24]).items()):
            key = KEYS[number % len(KEYS)]
            assert run.query_state("everything", state, key) == values[key], state
        assert run.query_state("everything", "last", "nobody") is None


def test_what_is_not_there_is_told_with_what_is(tmp_path: Path) -> None:
    with LocalExecutor(everything(configuration(tmp_path), RECORDS), quota=6) as run:
        with pytest.raises(StateLookupError, match=r"has saved no state 'last'; .*none"):
            run.query_state("Everything", "last", "a")
        run.epoch()
        with pytest.raises(StateLookupError, match=r"'x'; there are .*'everything' \(Everything\)"):
            run.query_state("x", "last", "a")
        with pytest.raises(StateLookupError, match=r"no state 'x'; .* has 'all', 'by tens', "):
            run.query_state("everything", "x", "a")
        assert run.query_state("everything", "last", "nobody") is None


def test_files_that_go_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs are accepted, and the files before them deleted, between the head and the read."""
    config = configuration(tmp_path)
    config.remove_config("execution.checkpointing.interval")
    records = [(key, n) for n in range(100) for key in KEYS]
    with LocalExecutor(everything(config, records), quota=6) as run:
        run.epoch()
        read = queries.read_file
        missed: list[str] = []

        def read_late(storage: Any, name: str, size: int) -> Any:
            while len(missed) < 2 and run.storage.exists(name):
                run.epoch()
            try:
                return read(storage, name, size)
            except StateStorageError:
                missed.append(name)
                raise

        monkeypatch.setattr(queries, "read_file", read_late)
        found = run.query_state("everything", "total", "a")
        assert len(missed) == 2
        assert found == model(records[: 6 * len(run.reports)])["total"]["a"]


def test_a_file_that_is_lost_is_an_error(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    config.remove_config("execution.checkpointing.interval")
    with LocalExecutor(everything(config, RECORDS), quota=6) as run:
        run.epoch()
        for level in run._book.heads:
            for head in level:
                for ref in head.files:
                    run.storage.delete(ref.name)
        with pytest.raises(StateStorageError):
            run.query_state("everything", "total", "a")


def test_before_the_first_epoch_the_savepoint_answers(tmp_path: Path) -> None:
    total = descriptors()["total"]
    writer = SavepointWriter().with_operator("everything", KeyedState(total, {"a": (10, 2)}))
    config = configuration(tmp_path, start=writer.write(tmp_path / "made"))
    with LocalExecutor(everything(config, RECORDS), quota=6) as run:
        assert run.query_state("everything", "total", "a") == (10, 2)
        assert run.query_state("everything", "total", "b") is None
        run.epoch()
        assert run.query_state("everything", "total", "a") == (14, 4)


def test_windows_are_asked_by_their_time(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configuration(tmp_path))
    times = [1, 4, 12, *range(20, 40)]
    source = env.from_collection([("a", n) for n in times]).set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = source.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(SecondField()))
    windowed = timed.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    totals = windowed.reduce(lambda x, y: ("a", x[1] + y[1])).uid("totals")
    with LocalExecutor(totals, quota=3) as run:
        run.epoch()
        for window in (TimeWindow(0, 1000), (0, 1000)):
            assert run.query_state("totals", CONTENTS, "a", window) == ("a", 17)
        assert run.query_state("totals", CONTENTS, "a", (1000, 2000)) is None


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])
