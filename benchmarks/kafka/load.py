"""The clients of a round trip: records are produced at a rate, and their results consumed.

A process of its own, so that neither the driver of a job nor the clients wait for each other. A
record is a key and the time at which it was produced; a result is a key, its count, and that time.
Where nothing counts, as in a pipeline without state, the count is 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from confluent_kafka import Consumer, Producer

from benchmarks.kafka.topics import COUNTS, PARTITIONS, RECORDS
from benchmarks.measure import PYTHON
from benchmarks.records import draw

__all__ = ["RATE", "Result", "round_trips"]

#: Records per second.
RATE = 500
KEYS = 100
#: The share of the records that is not measured: the job may just have begun.
WARM_UP = 0.3
#: Seconds without anything new after which something is wrong.
_PATIENCE = 120
#: A first record wakes up the job; the others follow when its result is there.
_FIRST = "first"


class Result(NamedTuple):
    """One result: its key and count, when its record was produced, and when it came."""

    key: str
    count: int
    produced: float
    consumed: float


def produce(address: str, count: int) -> None:
    """Write records at the rate, by the clock."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    began = time.time()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.time()))
        value = f"{draw(number, KEYS)},{time.time()}"
        producer.produce(RECORDS, value, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()


def consume(consumer: Consumer, count: int) -> list[Result]:
    """Read so many results: committed ones only."""
    results: list[Result] = []
    last = time.monotonic()
    while len(results) < count:
        # NB: not consume(1000, …), which waits for a thousand, and so adds to the latencies
        message = consumer.poll(0.05)
        if message is not None:
            now = time.time()
            key, number, produced = message.value().decode().split(",")
            results.append(Result(key, int(number), float(produced), now))
            last = time.monotonic()
        if time.monotonic() - last > _PATIENCE:
            raise SystemExit(f"Error: {len(results)} of {count} results came, and then none")
    return results


def wrong(results: list[Result]) -> str:
    """Return what is wrong with the counts of the keys: they must be 1, 2, 3, …, or all 0.

    >>> wrong([Result("a", 1, 0, 0), Result("a", 2, 0, 0)])
    ''
    >>> wrong([Result("a", 1, 0, 0), Result("a", 1, 0, 0)])
    "the counts of key 'a' are [1, 1]"
    """
    counts: dict[str, list[int]] = {}
    for result in results:
        counts.setdefault(result.key, []).append(result.count)
    for key, found in counts.items():
        if any(found) and sorted(found) != list(range(1, len(found) + 1)):
            return f"the counts of key '{key}' are {sorted(found)}"
    return ""


def round_trips(address: str, seconds: int) -> list[float]:
    """Run the clients against a job that runs already; returns the latencies after warm-up.

    Raises:
        SystemExit: when results are wrong, or do not come.
    """
    python = os.environ.get(PYTHON, sys.executable)
    command = [python, "-m", __name__, address, str(seconds * RATE)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit("Error: the clients failed; their message is above")
    latencies: list[float] = json.loads(done.stdout.splitlines()[-1])
    return latencies


def main() -> None:
    """Produce and consume; the arguments are the address and the number of records."""
    address, count = sys.argv[1], int(sys.argv[2])
    settings = {"bootstrap.servers": address, "group.id": "readers", "fetch.wait.max.ms": 10}
    consumer = Consumer(
        {**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe([COUNTS])
    first = Producer({"bootstrap.servers": address})
    first.produce(RECORDS, f"{_FIRST},{time.time()}", partition=0)
    first.flush()
    consume(consumer, 1)
    producing = threading.Thread(target=produce, args=(address, count))
    producing.start()
    results = consume(consumer, count)
    producing.join()
    consumer.close()
    if problem := wrong(results):
        raise SystemExit(f"Error: wrong result: {problem}")
    results.sort(key=lambda result: result.produced)
    measured = results[round(count * WARM_UP) :]
    print(json.dumps([result.consumed - result.produced for result in measured]))


if __name__ == "__main__":
    main()
