"""A sink that buffers five elements; what it has buffered is operator state and survives a crash.

Words come one after another, the odd ones to subtask 1 and the even ones to subtask 0. Each subtask
of ``BufferingSink`` keeps its words until it has five of them, and sends those off. At a checkpoint
it puts what it has into list state. The source sends a few words, waits until a checkpoint that
contains them is complete, and sends the next ones. After the checkpoint with a12 the sink fails
while it takes a15. The job is restarted: a11 and a12, which waited in the buffers at that
checkpoint, are back in them, and a13, which was buffered later, comes again from the source. The
program prints what all of them logged, in this order:

    buffer subtask: 1, element: a1, size: 1
    triggering checkpoint 1 @ 1763251051327 for job 'buffering sink'
    snapshot subtask: 1, checkpoint: 1, timestamp: 1763251051327, element: a1
    completed checkpoint 1 for job 'buffering sink' (412 bytes in 46 ms)
    ...
    buffer subtask: 1, element: a9, size: 5
    sink subtask: 1, element: a1
    ...
    a15 fails in subtask 1
    restore subtask: 1, element: a11

and then whether every word was sent off once. A sink like this one gives each element at least
once: had it failed between a batch and the next checkpoint, the batch would be sent off again.
"""

import itertools
import logging
import tempfile
import time
from pathlib import Path

from holdfast.common import RestartStrategies, Types
from holdfast.datastream import (
    MapFunction,
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

THRESHOLD = 5
#: the words that arrive together; the next ones come when a checkpoint contains them
ROUNDS = (
    ("a1", "a2"),
    ("a3", "a4", "a5", "a6", "a7"),
    ("a8",),
    ("a9", "a10", "a11"),
    ("a12",),
    ("a13", "a14", "a15"),
    ("a16", "a17", "a18", "a19", "a20"),
)
ROUNDS_BEFORE_THE_FAILURE = 5


def log(file: Path, text: str) -> None:
    """Append a line; driver and workers write to one file."""
    with file.open("a") as lines:
        lines.write(f"{time.strftime('%H:%M:%S')} {text}\n")


class Words(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Emits the words of a round, and waits until a checkpoint that contains them is complete."""

    def __init__(self) -> None:
        self.round = 0
        self.saved = True
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        while self.running and self.round < len(ROUNDS):
            if not self.saved:
                time.sleep(0.005)
                continue
            # Under the lock, a checkpoint has all words of a round or none of them.
            with ctx.get_checkpoint_lock():
                for word in ROUNDS[self.round]:
                    ctx.collect(word)
                self.round += 1
                self.saved = False

    def cancel(self) -> None:
        self.running = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.position = store.get_list_state(ListStateDescriptor("round", Types.INT()))
        #: the round that each checkpoint has reached, of those that are not complete
        self.reached: dict[int, int] = {}
        if context.is_restored():
            (self.round,) = self.position.get()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.position.update([self.round])
        self.reached[context.get_checkpoint_id()] = self.round

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self.reached.pop(checkpoint_id, None) == self.round:
            self.saved = True


class LogWords(MapFunction):
    """Says which word passes."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def map(self, value: str) -> str:
        log(self.file, f"word: {value}")
        return value


class BufferingSink(SinkFunction, CheckpointedFunction):
    """Sends elements off in batches; fails once, at one element."""

    def __init__(self, threshold: int, file: Path, fail_at: str) -> None:
        self.threshold = threshold
        self.file = file
        self.fail_at = fail_at
        self.buffered: list[str] = []
        self.restored = False

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("buffered-elements", Types.STRING())
        self.checkpointed = context.get_operator_state_store().get_list_state(descriptor)
        self.restored = context.is_restored()
        if self.restored:
            self.buffered.extend(self.checkpointed.get())

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.attempt = runtime_context.get_attempt_number()
        if self.restored:
            for element in self.buffered:
                log(self.file, f"restore subtask: {self.subtask}, element: {element}")

    def invoke(self, value: str, context: SinkFunction.Context) -> None:
        if value == self.fail_at and self.attempt == 0:
            log(self.file, f"{value} fails in subtask {self.subtask}")
            msg = f"simulated failure at {value}"
            raise RuntimeError(msg)
        self.buffered.append(value)
        size = len(self.buffered)
        log(self.file, f"buffer subtask: {self.subtask}, element: {value}, size: {size}")
        if size >= self.threshold:
            for element in self.buffered:
                log(self.file, f"sink subtask: {self.subtask}, element: {element}")
            self.buffered.clear()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.checkpointed.clear()
        for element in self.buffered:
            log(
                self.file,
                f"snapshot subtask: {self.subtask}, checkpoint: {context.get_checkpoint_id()}, "
                f"timestamp: {context.get_checkpoint_timestamp()}, element: {element}",
            )
            self.checkpointed.add(element)


def run(folder: Path, file: Path) -> None:
    """Run the job; it logs to the file."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_buffer_timeout(20)
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / "checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    words = env.add_source(Words(), "words").map(LogWords(file)).force_non_parallel()
    numbered = words.partition_custom(lambda number, n: number % n, lambda word: int(word[1:]))
    numbered.add_sink(BufferingSink(THRESHOLD, file, "a15"))
    env.execute("buffering sink")


def wrong(lines: list[str]) -> str | None:
    """What the log says that it should not; None if all is well."""
    sunk = [line.split()[-1] for line in lines if line.startswith("sink ")]
    if sorted(sunk) != sorted(word for words in ROUNDS for word in words):
        return f"the words that were sent off are {sunk}"
    restored = sorted(line.split()[-1] for line in lines if line.startswith("restore "))
    before = list(itertools.takewhile(lambda line: not line.startswith("restore "), lines))
    completed = [line.split()[2] for line in before if line.startswith("completed ")]
    if len(completed) < ROUNDS_BEFORE_THE_FAILURE:
        return f"only {len(completed)} checkpoints were completed before the failure"
    last = f"checkpoint: {completed[-1]},"
    saved = sorted(line.split()[-1] for line in before if line[:8] == "snapshot" and last in line)
    return None if restored == saved == ["a11", "a12"] else f"restored {restored}, saved {saved}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        # The driver tells of checkpoints in its log.
        handler = logging.FileHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        logger = logging.getLogger("holdfast.driver.checkpoints.job_checkpoints")
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        try:
            run(Path(folder), file)
        finally:
            logger.removeHandler(handler)
            handler.close()
        text = file.read_text()
    print(text, end="")
    problem = wrong([line.partition(" ")[2] for line in text.splitlines()])
    if problem:
        raise SystemExit(problem)
    print("every word was sent off once, in batches of five")


if __name__ == "__main__":
    main()
