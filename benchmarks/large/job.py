"""A job with large state, and its orders; it runs on a host of `benchmarks.large.command`.

    job.py FOLDER BYTES

All hosts see the folder. Each line of ``orders`` in it is a range of keys: each of them is written
once more, with a value of so many bytes in which its writes are counted. Beside that a key is read
every 20 ms. Sinks write what was read to ``results``, a file for each life of a sink.

The program itself asks for nothing: it prints what the job's history says whenever a line arrives
in ``questions``, as JSON, and ends the job with the line ``end``.
"""

from __future__ import annotations

import json
import random
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.common import Types
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.functions import ListCheckpointed, SinkFunction, SourceFunction
from holdfast.datastream.state import ValueStateDescriptor

#: keys that a source hands out under its lock
_AT_ONCE = 64
#: pause between two reads, in seconds
_PAUSE = 0.02
_COUNT = 8


class Orders(SourceFunction, ListCheckpointed):
    """Hands out (key, whether it is written); goes on where it was."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._running = True
        #: the order that it is at, and how many keys of it are done
        self._order = self._done = 0

    def run(self, ctx: Any) -> None:
        """Follow the orders until there is an end."""
        folder = Path(self._folder)
        keys = 0
        while self._running:
            orders = lines_of(folder / "orders")
            if self._order < len(orders):
                start, stop, step = map(int, orders[self._order].split())
                keys = max(keys, stop)
                self._follow(ctx, range(start, stop, step))
                (folder / f"done-{self._order - 1}").touch()
                continue
            time.sleep(_PAUSE)
            keys = keys or max((int(order.split()[1]) for order in orders), default=0)
            if keys:
                with ctx.get_checkpoint_lock():
                    ctx.collect((random.randrange(keys), False))

    def _follow(self, ctx: Any, keys: range) -> None:
        while self._running and self._done < len(keys):
            with ctx.get_checkpoint_lock():
                for key in keys[self._done : self._done + _AT_ONCE]:
                    ctx.collect((key, True))
                self._done += _AT_ONCE
        with ctx.get_checkpoint_lock():
            self._order, self._done = self._order + 1, 0

    def cancel(self) -> None:
        """End."""
        self._running = False

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """Where it is."""
        return [(self._order, self._done)]

    def restore_state(self, state: list[Any]) -> None:
        """Go on there."""
        self._order, self._done = state[0]


class Values(KeyedProcessFunction):
    """Writes the values, or reads them: (key, how often it was written, whether it is whole)."""

    def __init__(self, size: int) -> None:
        self._size = size

    def open(self, context: RuntimeContext) -> None:
        """Get hold of the state."""
        self._value = context.get_state(
            ValueStateDescriptor("value", Types.PRIMITIVE_ARRAY(Types.BYTE()))
        )

    def process_element(self, value: tuple[int, bool], ctx: Any) -> Iterator[Any]:
        """Write the value of a key once more, or tell of it."""
        key, writes = value
        found = bytes(self._value.value() or b"")
        count = int.from_bytes(found[:_COUNT], "little")
        if writes:
            self._value.update(self._made(key, count + 1))
        else:
            yield key, count, not found or found == self._made(key, count)

    def _made(self, key: int, count: int) -> bytes:
        # NB: nothing in it repeats itself, so that it cannot be compressed
        contents = random.Random(key).randbytes(self._size - _COUNT)
        return count.to_bytes(_COUNT, "little") + contents


class Results(SinkFunction):
    """Writes results to a file at once: nothing is lost with its process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, context: RuntimeContext) -> None:
        """Begin a file; its first line is the time."""
        path = Path(self._folder) / f"{uuid.uuid4().hex}.results"
        self._file = path.open("w", buffering=1, encoding="ascii")
        self._file.write(f"{time.time()}\n")

    def invoke(self, value: tuple[int, int, bool], context: Any) -> None:
        """Write one."""
        self._file.write(f"{time.time()} {value[0]} {value[1]} {int(value[2])}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file that others add to; none if it is not there."""
    text = path.read_text("ascii") if path.exists() else ""
    return text.rpartition("\n")[0].splitlines()


def main(folder: str, size: int) -> None:
    """Run the job, and tell of it when asked."""
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = env.add_source(Orders(folder), "orders").set_parallelism(1)
    values = orders.key_by(lambda record: record[0]).process(Values(size)).uid("values")
    values.add_sink(Results(folder))
    client = env.execute_async("large")
    answered = 0
    while True:
        questions = lines_of(Path(folder) / "questions")
        if client.get_job_status().result().name in ("FAILED", "FINISHED"):
            client.get_job_execution_result().result()
            return
        for question in questions[answered:]:
            if question == "end":
                client.cancel().result()
                return
            print(f"ANSWER {json.dumps(_history(client))}", flush=True)
        answered = len(questions)
        time.sleep(_PAUSE)


def _history(client: Any) -> dict[str, Any]:
    attempts = [
        {
            "started": each.started,
            "failure": each.failure,
            "loaded": None
            if each.loaded is None
            else [each.loaded.stored, each.loaded.local, each.loaded.time / 1000],
        }
        for each in client.get_attempts()
    ]
    checkpoints = [
        {
            "id": each.id,
            "began": each.trigger_timestamp / 1000,
            "ended": None if each.end_timestamp is None else each.end_timestamp / 1000,
            "size": each.size,
            "written": each.written,
            "failure": each.failure,
        }
        for each in client.get_checkpoints()
    ]
    return {"attempts": attempts, "checkpoints": checkpoints}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
