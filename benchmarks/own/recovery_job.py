"""How long a job is away after a failure; the variant is the number of keys in its state.

Every key gets a record; then comes a record at which a function fails, once. The job is away from
the failure to the end of the first epoch of the next attempt, which has loaded all state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement, emit
from benchmarks.own.jobs import CountAndTotal, Discard, environment, records
from benchmarks.program import parse_task
from benchmarks.records import Record, bootstrapped
from holdfast.common import RestartStrategies
from holdfast.datastream import MapFunction

#: records after the last key, so that there is a checkpoint with all keys before the failure
_REST = 200_000


class FailOnce(MapFunction):
    """Fails at a record, once, and notes the time."""

    def __init__(self, at: int, mark: Path) -> None:
        """Fail at the record with this number."""
        self._at = at
        self._mark = mark

    def map(self, value: Record) -> Record:
        """Pass a record on."""
        if value[2] == self._at and not self._mark.exists():
            self._mark.touch()
            raise RuntimeError("a failure for the benchmark")
        return value


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    keys = min(int(task.variant), task.records)
    env = environment(task)
    env.enable_checkpointing(200)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{task.directory}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    mark = Path(task.directory) / "failed"
    stream = records(env, keys + _REST, bootstrapped(keys))
    stream = stream.map(FailOnce(keys + _REST - 1, mark))
    stream.key_by(lambda r: r[0]).process(CountAndTotal()).add_sink(Discard())
    client: Any = env.execute_async(task.workload)
    client.get_job_execution_result().result()
    failed = mark.stat().st_mtime
    back = next(e for e in client.get_epochs() if e.started > failed)
    emit(
        Measurement(
            records=keys,
            figures={
                "recovery_seconds": back.started + back.seconds - failed,
                "load_seconds": back.steps["load"],
                "state_mb": back.state_bytes / 1e6,
            },
        )
    )


if __name__ == "__main__":
    main()
