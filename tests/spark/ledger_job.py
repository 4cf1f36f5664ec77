"""A keyed count with its results in a ledger (`tests.spark.ledger`), until that says to end.

Run with ``holdfast run``: ``ledger_job.py HOST:PORT RATE SOURCES``. There are so many sources of
numbers, shared out to the subtasks; the rate is in numbers per second and source. It imports
nothing of the tests: the hosts of executors do not have them.
"""

import json
import logging
import socket
import sys
import time
import uuid

from holdfast.datastream import (
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    TwoPhaseCommitSinkFunction,
)
from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.state import ValueStateDescriptor

KEYS = 20
#: seconds between two questions whether to end
ASK = 1.0


class Ledger:
    """Talks to a ledger: a line of JSON for a line of JSON."""

    def __init__(self, address):
        self._address = address

    def tell(self, patience=10.0, **request):
        host, _, port = self._address.partition(":")
        with socket.create_connection((host, int(port)), patience) as line:
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile() as answers:
                answer = json.loads(answers.readline() or '{"error": "the ledger hung up"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


class Numbers(Source):
    """Some sources of numbers from 0, each at a steady rate; after its last number, a mark."""

    def __init__(self, ledger, rate, sources):
        self._ledger, self._rate, self._sources = ledger, rate, sources

    def create_reader(self, subtask, parallelism):
        mine = range(subtask, self._sources, parallelism)
        return NumbersReader(self._ledger, self._rate, dict.fromkeys(mine, (0, False)))

    def redistribute(self, positions, parallelism):
        known = {source: at for position in positions for source, at in position.items()}
        return [
            {source: known[source] for source in range(subtask, self._sources, parallelism)}
            for subtask in range(parallelism)
        ]


class NumbersReader(SourceReader):
    """Reads some sources; a position is, by source, the next number and whether it has ended."""

    def __init__(self, ledger, rate, sources):
        self._ledger, self._rate, self._sources = ledger, rate, sources
        self._asked = self._gave = time.monotonic()

    def restore(self, position):
        self._sources = dict(position)

    def read(self, limit):
        if self.finished:
            return
        now = time.monotonic()
        due = min(limit // len(self._sources) - 1, int((now - self._gave) * self._rate))
        if due > 0:
            self._gave = now
            for source, (first, ended) in self._sources.items():
                if not ended:
                    self._sources[source] = first + due, False
                    yield [(source, n, time.time()) for n in range(first, first + due)]
        if now - self._asked > ASK and self._told_to_end():
            for source, (number, ended) in self._sources.items():
                if not ended:
                    self._sources[source] = number, True
                    yield [(source, -1, number)]

    def _told_to_end(self):
        self._asked = time.monotonic()
        try:
            return self._ledger.tell(patience=0.3, do="ask")["end"]
        except OSError:
            return False  # it is asked again

    def position(self):
        return dict(self._sources)

    @property
    def finished(self):
        return all(ended for _, ended in self._sources.values())


class Count(KeyedProcessFunction):
    """The count and the sum of a key, with each number."""

    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("sum", tuple[int, int]))

    def process_element(self, value, ctx):
        source, number, given = value
        if number < 0:
            yield {"source": source, "end": given}
            return
        count, total = self.state.value() or (0, 0)
        self.state.update((count + 1, total + number))
        yield {
            "source": source,
            "number": number,
            "given": given,
            "key": number % KEYS,
            "count": count + 1,
            "total": total + number,
        }


class Transactions(TwoPhaseCommitSinkFunction):
    """A transaction of the ledger; its records go there when it is pre-committed."""

    def __init__(self, ledger):
        self._ledger = ledger

    def begin_transaction(self):
        return {"name": uuid.uuid4().hex, "records": []}

    def invoke(self, transaction, value, context):
        transaction["records"].append(value)

    def pre_commit(self, transaction):
        self._ledger.tell(do="prepare", **transaction)
        transaction["records"] = []

    def commit(self, transaction):
        self._ledger.tell(do="commit", name=transaction["name"])

    def abort(self, transaction):
        self._ledger.tell(do="abort", name=transaction["name"])


def main(address, rate, sources):
    logging.basicConfig(format="%(asctime)s %(message)s")
    # restarts and rescales
    logging.getLogger("holdfast.driver.recording").setLevel(logging.INFO)
    env = StreamExecutionEnvironment.get_execution_environment()
    ledger = Ledger(address)
    numbers = env.from_source(Numbers(ledger, rate, sources), source_name="numbers")
    counts = numbers.key_by(lambda value: value[1] % KEYS).process(Count())
    counts.add_sink(Transactions(ledger))
    env.execute("ledger")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
