"""Runs the order job in this process, through whatever life a test has in mind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from examples.orders.job import Backend, JobSettings, environment, events
from examples.orders.pipeline import Outputs, PipelineSettings, build
from examples.orders.shop import Shop
from examples.orders.sinks import attach
from examples.orders.verify import Check, verify
from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment

#: stock of which there is soon too little
STOCK = 15
SMALL = Shop(seed=5, slices=70, duplicates=0.2, disorder=True, lateness=0.05)


def settings(directory: Path, parallelism: int = 2, backend: Backend = "hashmap") -> JobSettings:
    return JobSettings(
        directory,
        SMALL,
        backend=backend,
        parallelism=parallelism,
        pipeline=PipelineSettings(initial_stock=STOCK),
    )


def job(
    chosen: JobSettings,
    savepoint: str | None = None,
    more: Callable[[Outputs], None] = lambda outputs: None,
) -> StreamExecutionEnvironment:
    """The job as `examples.orders.job.prepare` makes it; from a savepoint, or with more to it."""
    env = environment(chosen, Configuration({} if savepoint is None else recovery(savepoint)))
    outputs = build(events(env, chosen), chosen.pipeline)
    attach(outputs, chosen.sink, chosen.output)
    more(outputs)
    return env


def recovery(savepoint: str) -> dict[str, str]:
    """Settings to go on from a savepoint; the transactions of sinks are pickled in it."""
    return {
        "execution.state-recovery.path": savepoint,
        "holdfast.state-recovery.allow-pickled-state": "true",
    }


def check(chosen: JobSettings, subtasks: int) -> list[Check]:
    """What is not as it should be."""
    checks = verify(chosen.shop, chosen.output, initial_stock=STOCK, subtasks=subtasks)
    return [one for one in checks if not one.passed]
