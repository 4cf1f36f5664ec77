"""Running totals per user with numpy, for whole batches of records at once, with state in columns.

`ColumnState.running_add` does the same in one call; this shows how to write such a function.

python examples/running_totals.py
"""

from typing import Any

import numpy as np
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
        by_user = np.argsort(keys.indices, kind="stable")
        sums = np.cumsum(batch["amount"].to_numpy()[by_user])
        last = np.cumsum(np.bincount(keys.indices)) - 1
        # what the sums contain from the users before, and the totals from earlier batches
        others = np.append(0, sums[last[:-1]])
        earlier = self.total.get_distinct(keys).to_numpy() - others
        totals = np.empty_like(sums)
        totals[by_user] = sums + earlier[keys.indices[by_user]]
        self.total.put_distinct(keys, totals[by_user[last]])
        return {"user": batch["user"], "total": totals}


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = pa.record_batch({"user": ["ann", "bob", "ann", "ann"], "amount": [5, 7, 1, 2]})
    totals = env.from_collection([orders]).key_by("user").process_batches(RunningTotal(), TOTALS)
    totals.print()
    env.execute("running totals")


if __name__ == "__main__":
    main()
