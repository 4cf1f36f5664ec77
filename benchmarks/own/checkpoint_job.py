"""The keyed count with a checkpoint every so many milliseconds, the variant; 0: none."""

from __future__ import annotations

from benchmarks.measure import emit, measured
from benchmarks.own.epochs import epoch_marks, holdfast_epochs
from benchmarks.own.jobs import environment
from benchmarks.own.throughput_job import keyed_count
from benchmarks.program import parse_task


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    env = environment(task)
    interval = int(task.variant)
    if interval:
        env.enable_checkpointing(interval)
        env.get_checkpoint_config().set_checkpoint_storage_dir(f"{task.directory}/checkpoints")
    keyed_count(env, task.records)
    client = env.execute_async(task.workload)
    client.get_job_execution_result().result()
    emit(measured(epoch_marks(holdfast_epochs(client))))


if __name__ == "__main__":
    main()
