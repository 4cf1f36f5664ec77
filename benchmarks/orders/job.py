"""The order system on Holdfast: its rate at saturation, and its latency at half of that.

Latency is from the moment at which an event could be read to the end of the epoch that read it:
then the epoch was accepted, and its output is there for all who do not wait for a checkpoint.
The variant ``rate`` measures the rate alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

from benchmarks.measure import emit, measured
from benchmarks.orders.data import check, make
from benchmarks.orders.source import RecordedEvents
from benchmarks.own.epochs import Epoch, epoch_marks, holdfast_epochs
from benchmarks.program import PARALLELISM, Task, parse_task
from examples.orders.job import JobSettings, environment, events
from examples.orders.pipeline import build, watermarks
from examples.orders.shop import PARTITIONS, Shop, deliveries
from examples.orders.sinks import attach
from holdfast.datastream import DataStream, StreamExecutionEnvironment

#: how long the job runs at half of its load, in seconds
_PACED = 20
#: how much of that only warms up
_WARM_UP = 0.25


def settings_of(name: str, task: Task) -> JobSettings:
    """The settings of the example, but for what the peer has otherwise."""
    return JobSettings(
        Path(task.directory) / name,
        backend="hashmap",
        checkpoint_interval=task.checkpoint * 1000,
        parallelism=PARALLELISM,
    )


def run(
    name: str, env: StreamExecutionEnvironment, stream: DataStream, settings: JobSettings
) -> list[Epoch]:
    """Run the job over a stream of events, to files; returns its epochs."""
    attach(build(stream, settings.pipeline), settings.sink, settings.output)
    client = env.execute_async(name)
    client.get_job_execution_result().result()
    return holdfast_epochs(client)


def at_saturation(task: Task) -> list[Epoch]:
    """Read the recorded events as fast as it goes; what came out is compared."""
    data = make(task.records, PARALLELISM)
    settings = settings_of("full", task)
    env = environment(settings)
    stream = env.from_source(RecordedEvents(data), watermarks(), "events").uid("events")
    epochs = run("full", env, stream, settings)
    differences = check(task.records, settings.output)
    if differences:
        sys.exit(f"the outputs are not what they should be:\n{differences}")
    return epochs


def paced(shop: Shop, task: Task) -> list[Epoch]:
    """Take events from the generator, at its rate."""
    settings = replace(settings_of("half", task), shop=shop)
    env = environment(settings)
    return run("half", env, events(env, settings), settings)


def latencies(epochs: list[Epoch], shop: Shop) -> Iterator[float]:
    """How long each event waited for the end of its epoch, in seconds."""
    began = next(epoch["started"] for epoch in epochs if epoch["records"])
    ready = _ready(shop)
    for epoch in epochs:
        end = epoch["started"] + epoch["seconds"] - began
        for _ in range(epoch["records"]):
            yield end - next(ready)


def _ready(shop: Shop) -> Iterator[float]:
    """When each event can be read, in seconds from the first read."""
    assert shop.rate is not None
    for number in range(shop.slices or 0):
        come = (number + 1) * shop.events_per_slice / shop.rate
        for partition in range(PARTITIONS):
            yield from (come for _ in deliveries(shop, partition, number))


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    measurement = measured(epoch_marks(at_saturation(task)))
    if task.variant == "rate":
        emit(measurement)
        return
    rate = measurement.warm_rate / 2
    shop = Shop(disorder=True, lateness=0.01, duplicates=0.02, rate=rate)
    shop = replace(shop, slices=shop.slices_for(round(rate * _PACED)))
    waited = list(latencies(paced(shop, task), shop))
    cuts = quantiles(waited[round(len(waited) * _WARM_UP) :], n=100)
    figures = {"half_rate": rate, "latency_median": cuts[49], "latency_p99": cuts[98]}
    emit(replace(measurement, figures=figures))


if __name__ == "__main__":
    main()
