"""Running totals per user, for whole batches of records at once, with state in columns.

python examples/running_totals.py
"""

from typing import Any

import pyarrow as pa

from holdfast.datastream import KeyedBatchFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ColumnStateDescriptor, Keys

TOTALS = pa.schema([("user", pa.string()), ("total", pa.int64())])


class RunningTotal(KeyedBatchFunction):
    """The total of a user after each of its orders."""

    def open(self, runtime_context: RuntimeContext) -> None:
        total = ColumnStateDescriptor("total", pa.int64(), default=0)
        self.total = runtime_context.get_column_state(total)

    def process_batch(self, batch: pa.RecordBatch, keys: Keys, ctx: Any) -> Any:
        return {"user": batch["user"], "total": self.total.running_add(keys, batch["amount"])}


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = pa.record_batch({"user": ["ann", "bob", "ann", "ann"], "amount": [5, 7, 1, 2]})
    totals = env.from_collection([orders]).key_by("user").process_batches(RunningTotal(), TOTALS)
    totals.print()
    env.execute("running totals")


if __name__ == "__main__":
    main()
