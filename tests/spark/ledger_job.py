"""A keyed count with its results in a ledger (`tests.spark.ledger`), until that says to end.

Run with ``holdfast run``: ``ledger_job.py HOST:PORT RATE``, where the rate is in numbers per second
and subtask. It imports nothing of the tests: the hosts of executors do not have them.
"""

import json
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
    """Numbers from 0, for each subtask its own, at a steady rate; after the last one, a mark."""

    def __init__(self, ledger, rate):
        self._ledger, self._rate = ledger, rate

    def create_reader(self, subtask, parallelism):
        return NumbersReader(self._ledger, self._rate, subtask)


class NumbersReader(SourceReader):
    def __init__(self, ledger, rate, subtask):
        self._ledger, self._rate, self._subtask = ledger, rate, subtask
        self._next, self._ended = 0, False
        self._asked = self._gave = time.monotonic()

    def restore(self, position):
        self._next, self._ended = position

    def read(self, limit):
        now = time.monotonic()
        due = min(limit - 1, int((now - self._gave) * self._rate))
        if due > 0:
            self._gave = now
            first, self._next = self._next, self._next + due
            yield [(self._subtask, n, time.time()) for n in range(first, self._next)]
        if not self._ended and now - self._asked > ASK and self._told_to_end():
            self._ended = True
            yield [(self._subtask, -1, self._next)]

    def _told_to_end(self):
        self._asked = time.monotonic()
        try:
            return self._ledger.tell(patience=0.3, do="ask")["end"]
        except OSError:
            return False  # it is asked again

    def position(self):
        return self._next, self._ended

    @property
    def finished(self):
        return self._ended


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


def main(address, rate):
    env = StreamExecutionEnvironment.get_execution_environment()
    ledger = Ledger(address)
    numbers = env.from_source(Numbers(ledger, rate), source_name="numbers")
    counts = numbers.key_by(lambda value: value[1] % KEYS).process(Count())
    counts.add_sink(Transactions(ledger))
    env.execute("ledger")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
