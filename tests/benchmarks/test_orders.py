"""The order system as it is measured: from files to files, and the proof at the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.measure import PYTHON
from benchmarks.orders import data, source
from benchmarks.orders.job import latencies, settings_of
from benchmarks.orders.source import RecordedEvents
from benchmarks.own.epochs import Epoch
from benchmarks.program import PARALLELISM, Task
from examples.orders.job import environment
from examples.orders.pipeline import build, watermarks
from examples.orders.shop import Shop, all_deliveries
from examples.orders.sinks import attach
from holdfast.testing import LocalExecutor

EVENTS = 3000


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(data, "ROOT", tmp_path / "events")
    return data.make(EVENTS, PARALLELISM)


def test_recorded_events_give_what_they_should(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_CHUNK", 4096)
    settings = settings_of("full", Task("orders", EVENTS, 1, str(tmp_path), ""))
    env = environment(settings)
    stream = env.from_source(RecordedEvents(events), watermarks(), "events").uid("events")
    attach(build(stream, settings.pipeline), settings.sink, settings.output)
    with LocalExecutor(env, quota=500, workers=2) as run:
        for _ in range(2):
            run.epoch(checkpoint=True)
        assert not run.finished
        run.recover()  # the source goes on where the checkpoint was
        run.run_to_end()
    assert data.check(EVENTS, settings.output) == ""
    part = next(Path(settings.output, "stock").glob("[!.]*"))
    part.write_text(part.read_text().split("\n", 1)[1])
    assert "DIFFERS" in data.check(EVENTS, settings.output, data.PEERS_OUTPUTS)


def test_a_peer_asks_for_the_events_and_for_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, PYTHON, sys.executable)
    assert "statuses" in data.ask("check", 100, tmp_path)


def test_latency_is_from_when_an_event_can_be_read_to_the_end_of_its_epoch() -> None:
    shop = Shop(rate=Shop().events_per_slice, slices=2)
    count = len(list(all_deliveries(shop)))
    first = len(list(all_deliveries(Shop(slices=1))))
    epochs = [
        Epoch(epoch=0, records=0, seconds=9.0, started=90.0),
        Epoch(epoch=1, records=first, seconds=1.5, started=100.0),
        Epoch(epoch=2, records=count - first, seconds=0.25, started=102.0),
    ]
    assert list(latencies(epochs, shop)) == [0.5] * first + [0.25] * (count - first)
