"""Features for a model: of each order, what is known about its customer up to then.

The features are computed for whole batches, and a model can be called with the same batch. Here the
"model" is a linear one, with numpy.

    python examples/model_features.py
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.datastream import (
    BatchFunction,
    KeyedBatchFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ColumnStateDescriptor, Keys

FEATURES = pa.schema(
    [
        ("customer", pa.int64()),
        ("amount", pa.float64()),
        ("orders", pa.int64()),
        ("largest", pa.float64()),
    ]
)
SCORED = pa.schema([("customer", pa.int64()), ("score", pa.float64())])


class Features(KeyedBatchFunction):
    """How many orders a customer has made, and the largest of them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        orders = ColumnStateDescriptor("orders", pa.int64(), default=0)
        largest = ColumnStateDescriptor("largest", pa.float64())
        self.orders = runtime_context.get_column_state(orders)
        self.largest = runtime_context.get_column_state(largest)

    def process_batch(self, batch: pa.RecordBatch, keys: Keys, ctx: Any) -> Any:
        return {
            "customer": batch["customer"],
            "amount": batch["amount"],
            "orders": self.orders.running_count(keys),
            "largest": self.largest.running_max(keys, batch["amount"]),
        }


class Model(BatchFunction):
    """A linear model."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.weights = np.array([0.5, -0.25, 0.125])

    def map_batch(self, batch: pa.RecordBatch) -> Any:
        columns = (pc.cast(batch[name], pa.float64()) for name in ("amount", "orders", "largest"))
        return {"customer": batch["customer"], "score": np.stack(list(columns), 1) @ self.weights}


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = pa.record_batch({"customer": [1, 2, 1], "amount": [8.0, 4.0, 2.0]})
    features = (
        env.from_collection([orders]).key_by("customer").process_batches(Features(), FEATURES)
    )
    features.map_batches(Model(), SCORED).print()
    env.execute("features for a model")


if __name__ == "__main__":
    main()
