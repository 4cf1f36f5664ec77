"""The order system of ``examples/orders``: its rate at saturation, and its latency at half of that.

Latency is from the moment at which an event could be read to the end of the epoch that read it:
then the epoch was accepted, and its output is there for all who do not wait for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

from benchmarks.measure import emit, measured
from benchmarks.own.epochs import Epoch, epoch_marks, holdfast_epochs
from benchmarks.own.jobs import Discard
from benchmarks.program import PARALLELISM, Task, parse_task
from examples.orders.job import JobSettings, environment, events
from examples.orders.pipeline import build
from examples.orders.shop import PARTITIONS, Shop, deliveries

#: how long the job runs at half of its load, in seconds
_PACED = 20
#: how much of that only warms up
_WARM_UP = 0.25


def run(name: str, shop: Shop, task: Task) -> list[Epoch]:
    """Run the job with an end to all its outputs; returns its epochs."""
    settings = JobSettings(
        Path(task.directory) / name,
        shop,
        backend="hashmap",
        checkpoint_interval=task.checkpoint * 1000,
        parallelism=PARALLELISM,
    )
    env = environment(settings)
    for output in build(events(env, settings), settings.pipeline):
        output.add_sink(Discard())
    client = env.execute_async(name)
    client.get_job_execution_result().result()
    return holdfast_epochs(client)


def latencies(epochs: list[Epoch], shop: Shop) -> Iterator[float]:
    """How long each event waited for the end of its epoch, in seconds."""
    assert shop.rate is not None
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
    shop = Shop(disorder=True, lateness=0.01)
    full = replace(shop, orders_per_slice=5)
    full = replace(full, slices=full.slices_for(task.records))
    measurement = measured(epoch_marks(run("full", full, task)))
    rate = measurement.warm_rate / 2
    half = replace(shop, rate=rate, slices=shop.slices_for(round(rate * _PACED)))
    waited = list(latencies(run("half", half, task), half))
    cuts = quantiles(waited[round(len(waited) * _WARM_UP) :], n=100)
    figures = {"half_rate": rate, "latency_median": cuts[49], "latency_p99": cuts[98]}
    emit(replace(measurement, figures=figures))


if __name__ == "__main__":
    main()
