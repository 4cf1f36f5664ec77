"""The life of a job, as a hypothesis value: how it is run, and what befalls it on the way.

The records that a job gives must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.events import CheckpointStatus
from holdfast.common import Configuration
from holdfast.common.options.recovery import PICKLED_STATE
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.testing import LocalExecutor

Build = Callable[[StreamExecutionEnvironment], DataStream]

#: a number: the job is stopped with a savepoint, and goes on with that parallelism
Event = str | int
EPOCH, CHECKPOINT, CRASH = "epoch", "checkpoint", "crash"


@dataclass(frozen=True)
class Life:
    """How a job is run, and what happens; after the last event it runs to its end."""

    parallelism: int = 2
    workers: int = 1
    quota: int = 1000
    seed: int = 0
    events: tuple[Event, ...] = ()


def lives(quotas: st.SearchStrategy[int] | None = None) -> st.SearchStrategy[Life]:
    """Any life; without other quotas, epochs end where the script says."""
    event = st.sampled_from([EPOCH, EPOCH, CHECKPOINT, CHECKPOINT, CRASH, 1, 2, 3])
    return st.builds(
        Life,
        parallelism=st.integers(1, 3),
        workers=st.integers(1, 3),
        quota=st.just(1000) if quotas is None else quotas,
        seed=st.integers(0, 3),
        events=st.lists(event, max_size=8).map(tuple),
    )


def live(build: Build, life: Life) -> list[Any]:
    """Run a job to its end through such a life; returns the records as if nothing had happened."""
    with TemporaryDirectory() as directory:
        return _live(build, life, directory)


def _live(build: Build, life: Life, directory: str) -> list[Any]:
    records: list[Any] = []
    parallelism, savepoint, events = life.parallelism, None, list(life.events)
    while parallelism:
        env = _environment(parallelism, savepoint)
        settings: dict[str, Any] = {"workers": life.workers, "quota": life.quota, "seed": life.seed}
        with LocalExecutor(build(env), **settings) as run:
            parallelism = _run(run, events)
            if parallelism:
                savepoint = _stop(run, directory)
                parallelism = parallelism if savepoint else 0
        records += run.records
    return records


def _stop(run: LocalExecutor, directory: str) -> str | None:
    """Stop with a savepoint; None if the job came to its end instead."""
    try:
        return run.savepoint(directory, stop=True)
    except CheckpointError:
        assert run.finished
        return None


def _environment(parallelism: int, savepoint: str | None) -> StreamExecutionEnvironment:
    configuration = Configuration({"execution.checkpointing.interval": "1 h"})
    if savepoint is not None:
        configuration.set_string("execution.state-recovery.path", savepoint)
        configuration.set_string(str(PICKLED_STATE), "true")
    return StreamExecutionEnvironment(configuration).set_parallelism(parallelism)


def _run(run: LocalExecutor, events: list[Event]) -> int:
    """Run to the end, or to the next change of parallelism; returns that one."""
    kept = 0
    while not run.finished:
        event = events.pop(0) if events else EPOCH
        if isinstance(event, int):
            return event
        if event == CRASH:
            run.recover()
            del run.records[kept:]
        else:
            before = len(_completed(run))
            run.epoch(checkpoint=event == CHECKPOINT)
            # NB: the job takes one by itself, too, after its last record
            kept = len(run.records) if len(_completed(run)) > before else kept
    return 0


def _completed(run: LocalExecutor) -> list[int]:
    done = CheckpointStatus.COMPLETED
    return [record.id for record in run.checkpoints if record.status is done]
