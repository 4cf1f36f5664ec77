"""A function that fails at its hundredth record, under checkpoints and a restart strategy.

``FaultSimulationFunction`` counts records in two places. One count is a field: it lives as long as
the function object, which is made anew in each attempt, so every attempt fails at the hundredth
record that it sees. The other count is operator state: it goes back to the last checkpoint with
everything else, so it counts each record once. The source sends thirty records and waits until a
checkpoint that contains them is complete, so it is certain which checkpoint is the last one before
a failure. Each attempt comes further than the one before, and after three restarts the job is done:

    attempt 0 begins with 0 records in state
    attempt 1 begins with 90 records in state
    attempt 2 begins with 180 records in state
    attempt 3 begins with 270 records in state
    300 records went in, 300 are in state

Then the same with one restart only. The job gives up, and its checkpoints stay. Started once more,
now mended, it goes on from the last of them:

    gave up: simulated failure at record 100
    started again with 180 records in state
    300 records went in, 300 are in state
"""

import tempfile
import time
from pathlib import Path

from holdfast.common import RestartStrategies, Time, Types
from holdfast.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointCleanup,
    HashMapStateBackend,
    MapFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    SourceContext,
)
from holdfast.datastream.state import ListStateDescriptor
from holdfast.errors import UserFunctionError

RECORDS = 300
AT_ONCE = 30


class Records(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Emits numbers, some at once; waits until a checkpoint that contains them is complete."""

    def __init__(self) -> None:
        self.sent = 0
        self.saved = True
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.sent < RECORDS:
            if not self.saved:
                time.sleep(0.005)
                continue
            with ctx.get_checkpoint_lock():
                for _ in range(AT_ONCE):
                    self.sent += 1
                    ctx.collect(self.sent)
                self.saved = False

    def cancel(self) -> None:
        self.running = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("sent", Types.LONG())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.sent = sum(self.state.get())
        #: how much was sent at each checkpoint that is not complete
        self.sent_at: dict[int, int] = {}

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.sent])
        self.sent_at[context.get_checkpoint_id()] = self.sent

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self.sent_at.pop(checkpoint_id, None) == self.sent:
            self.saved = True


class FaultSimulationFunction(MapFunction, CheckpointedFunction):
    """Hands records on with their number; fails at the n-th one that this object sees."""

    def __init__(self, fail_at: int | None, file: Path) -> None:
        self.fail_at = fail_at
        self.file = file
        self.processed_count = 0
        self.total = 0

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("total", Types.LONG())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.total = sum(self.state.get())
        with self.file.open("a") as lines:
            lines.write(f"{self.total}\n")

    def map(self, value: int) -> tuple[int, int]:
        self.processed_count += 1
        if self.processed_count == self.fail_at:
            msg = f"simulated failure at record {self.processed_count}"
            raise RuntimeError(msg)
        self.total += 1
        return value, self.total

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.total])


def configure_checkpointing(env: StreamExecutionEnvironment, directory: Path) -> None:
    """As for a job in earnest, but every ten milliseconds."""
    env.enable_checkpointing(10)
    config = env.get_checkpoint_config()
    config.set_checkpointing_mode(CheckpointingMode.EXACTLY_ONCE)
    config.set_checkpoint_timeout(600_000)
    config.set_max_concurrent_checkpoints(1)
    config.set_min_pause_between_checkpoints(1)
    config.enable_externalized_checkpoints(ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION)
    config.set_fail_on_checkpointing_errors(True)
    config.set_checkpoint_storage_dir(directory.as_uri())
    env.set_state_backend(HashMapStateBackend())


def configure_restart_strategy(env: StreamExecutionEnvironment, attempts: int) -> None:
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(attempts, Time.milliseconds(30)))


def run(folder: Path, name: str, restarts: int, fail_at: int | None) -> dict[int, int]:
    """Run the job; returns the last number that each record got."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).set_buffer_timeout(20)
    configure_checkpointing(env, folder / "checkpoints")
    configure_restart_strategy(env, restarts)
    records = env.add_source(Records(), "records").uid("records")
    function = FaultSimulationFunction(fail_at, folder / name)
    return dict(records.map(function).uid("simulation").execute_and_collect(name))


def beginnings(folder: Path, name: str) -> list[int]:
    """How many records were in state when each attempt began."""
    return [int(line) for line in (folder / name).read_text().splitlines()]


def check(totals: dict[int, int], what: str) -> None:
    """Every record got the number that it would have got without a failure."""
    wrong = {record: total for record, total in totals.items() if record != total}
    if wrong or max(totals) != RECORDS:
        raise SystemExit(f"{what}: records were lost or counted twice: {wrong}")
    print(f"{RECORDS} records went in, {max(totals.values())} are in state")


def enough_restarts(folder: Path) -> None:
    totals = run(folder, "five restarts", 5, fail_at=100)
    found = beginnings(folder, "five restarts")
    for attempt, total in enumerate(found):
        print(f"attempt {attempt} begins with {total} records in state")
    if len(found) != 4 or found != sorted(found):
        raise SystemExit(f"attempts began with {found} records in state")
    check(totals, "five restarts")


def too_few_restarts(folder: Path) -> None:
    try:
        run(folder, "one restart", 1, fail_at=100)
    except UserFunctionError as error:
        print(f"gave up: {error.original}")
    else:
        raise SystemExit("a second failure should have been the end")
    totals = run(folder, "one restart", 1, fail_at=None)
    again = beginnings(folder, "one restart")[-1]
    print(f"started again with {again} records in state")
    if again == 0 or min(totals) != again + 1:
        raise SystemExit(f"the job began with {again} and read from record {min(totals)} on")
    check(totals, "one restart")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        enough_restarts(Path(folder))
        too_few_restarts(Path(folder))


if __name__ == "__main__":
    main()
