"""The calls of a checkpoint, seen from a source and a sink, chained and with a key_by in between.

``StateSource`` and ``StateSink`` say what is called when: their states are initialized, records are
sent and received, both take a snapshot at the barrier of a checkpoint, and when all have, both are
told that it is complete. The source sends five records, waits for a complete checkpoint that
contains them, and sends the next five. The program runs the two joined directly, then by a
``key_by``, and prints what they said:

    StateSink initialize_state
    StateSource initialize_state
    StateSource send:1
    StateSink recv:1
    ...
    StateSink snapshot_state 1 begin
    StateSink snapshot_state 1 end, received 5
    StateSource snapshot_state 1 begin
    StateSource snapshot_state 1 end, sent 5
    ...
    StateSink notify_checkpoint_complete 1
    StateSource notify_checkpoint_complete 1

A record may be on its way when a checkpoint is taken. What matters is that both ends agree: at each
checkpoint the sink has received exactly what the source has sent, since the barrier travels behind
the last record and the source moves its position under the checkpoint lock. As in Flink, the last
function of a chain is asked first, and the source last, which stands still meanwhile; behind a
``key_by`` the sink takes its snapshot after the source, when the barrier has come to it.

The sink fails once. The source sends again what the checkpoint does not contain, and no record is
missing in the sink's state, or there twice. The program checks all that and ends each job with

    chained: 30 records, 12 checkpoints, nothing lost on the way
"""

import re
import tempfile
import time
from pathlib import Path

from holdfast.common import RestartStrategies, Types
from holdfast.datastream import (
    HashMapStateBackend,
    RuntimeContext,
    SinkFunction,
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

RECORDS = 30
AT_ONCE = 5
#: how long a snapshot takes to make something durable
SNAPSHOT_SECONDS = 0.02


def log(file: Path, text: str) -> None:
    with file.open("a") as lines:
        lines.write(f"{text}\n")


class StateSource(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Sends numbers as texts; after some of them, waits for a checkpoint that has them all."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.sent = 0
        self.left = AT_ONCE
        #: how much was sent at each checkpoint that is not complete
        self.sent_at: dict[int, int] = {}
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.sent < RECORDS:
            if self.left == 0:
                time.sleep(0.005)
                continue
            log(self.file, f"StateSource send:{self.sent + 1}")
            # Snapshots are taken under the lock: they contain a record and its number, or neither.
            with ctx.get_checkpoint_lock():
                ctx.collect(str(self.sent + 1))
                self.sent += 1
                self.left -= 1

    def cancel(self) -> None:
        self.running = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        log(self.file, "StateSource initialize_state")
        descriptor = ListStateDescriptor("sent", Types.INT())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.sent = sum(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        checkpoint = context.get_checkpoint_id()
        log(self.file, f"StateSource snapshot_state {checkpoint} begin")
        time.sleep(SNAPSHOT_SECONDS)
        self.state.update([self.sent])
        self.sent_at[checkpoint] = self.sent
        log(self.file, f"StateSource snapshot_state {checkpoint} end, sent {self.sent}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        log(self.file, f"StateSource notify_checkpoint_complete {checkpoint_id}")
        if self.sent_at.pop(checkpoint_id, None) == self.sent and self.left == 0:
            self.left = AT_ONCE


class StateSink(SinkFunction, CheckpointedFunction, CheckpointListener):
    """Receives them; fails once, at a record after some checkpoints."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.received: set[int] = set()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        log(self.file, "StateSink initialize_state")
        descriptor = ListStateDescriptor("received", Types.INT())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.received = set(self.state.get())

    def open(self, runtime_context: RuntimeContext) -> None:
        self.attempt = runtime_context.get_attempt_number()

    def invoke(self, value: str, context: SinkFunction.Context) -> None:
        if value == "18" and self.attempt == 0:
            log(self.file, "StateSink fails")
            msg = f"simulated failure at record {value}"
            raise RuntimeError(msg)
        log(self.file, f"StateSink recv:{value}")
        if int(value) in self.received:
            msg = f"record {value} came again"
            raise ValueError(msg)
        self.received.add(int(value))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        checkpoint = context.get_checkpoint_id()
        log(self.file, f"StateSink snapshot_state {checkpoint} begin")
        time.sleep(SNAPSHOT_SECONDS)
        self.state.update(self.received)
        log(
            self.file,
            f"StateSink snapshot_state {checkpoint} end, received {len(self.received)}",
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        log(self.file, f"StateSink notify_checkpoint_complete {checkpoint_id}")


def run(folder: Path, keyed: bool) -> list[str]:
    """Run the job and return what was logged."""
    name = "keyed" if keyed else "chained"
    file = folder / name
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).set_buffer_timeout(20)
    env.set_state_backend(HashMapStateBackend())
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage_dir(folder.as_uri() + "/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    records = env.add_source(StateSource(file), "StateSource")
    stream = records.key_by(lambda text: text) if keyed else records
    stream.add_sink(StateSink(file)).name("StateSink").set_parallelism(1)
    env.execute(name)
    return file.read_text().splitlines()


def complete(lines: list[str]) -> list[int]:
    """The checkpoints that both were told of; each after both had taken their snapshots.

    Raises:
        SystemExit: when the two do not agree on what had passed at a checkpoint.
    """
    told = sorted({int(line.split()[-1]) for line in lines if "notify" in line})
    for checkpoint in told:
        ends = [n for n, line in enumerate(lines) if f"snapshot_state {checkpoint} end" in line]
        first_told = lines.index(f"StateSink notify_checkpoint_complete {checkpoint}")
        counts = {lines[n].split()[-1] for n in ends}
        if len(ends) != 2 or first_told < max(ends) or len(counts) != 1:
            raise SystemExit(f"checkpoint {checkpoint} is not one: {[lines[n] for n in ends]}")
    return told


def check(lines: list[str]) -> int:
    """Hold the log of a job against what is promised; returns the number of checkpoints."""
    text = "\n".join(lines)
    if text.count("initialize_state") != 4 or text.count("StateSink fails") != 1:
        raise SystemExit("there were not one failure and two attempts")
    checkpoints = complete(lines)
    last = [int(n) for n in re.findall(r"StateSink snapshot_state \d+ end, received (\d+)", text)]
    received = {int(n) for n in re.findall(r"recv:(\d+)", text)}
    if received != set(range(1, RECORDS + 1)) or last[-1] != RECORDS:
        raise SystemExit(f"{len(received)} records were received, {last[-1]} are in the state")
    return len(checkpoints)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for keyed in (False, True):
            lines = run(folder, keyed)
            print("\n".join(lines))
            count = check(lines)
            kind = "keyed" if keyed else "chained"
            print(f"{kind}: {RECORDS} records, {count} checkpoints, nothing lost on the way")


if __name__ == "__main__":
    main()
