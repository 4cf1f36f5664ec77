"""How unusual each reading of a device is: its distance from the mean, in standard deviations.

Count, sum and sum of squares of each device are columns of state. All computations are on whole
columns, with numpy.

    python examples/anomaly_scores.py
"""

from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.datastream import KeyedBatchFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ColumnState, ColumnStateDescriptor, Keys

SCORES = pa.schema([("device", pa.string()), ("value", pa.float64()), ("score", pa.float64())])


class Scores(KeyedBatchFunction):
    """Compares each reading with all readings of its device so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        def column(name: str) -> ColumnState:
            descriptor = ColumnStateDescriptor(name, pa.float64(), default=0.0)
            return runtime_context.get_column_state(descriptor)

        self.count, self.sum, self.squares = column("count"), column("sum"), column("squares")

    def process_batch(self, batch: pa.RecordBatch, keys: Keys, ctx: Any) -> Any:
        value = batch["value"].to_numpy()
        count = self.count.running_add(keys, np.ones(len(value))).to_numpy()
        mean = self.sum.running_add(keys, value).to_numpy() / count
        squares = self.squares.running_add(keys, value**2).to_numpy() / count
        deviation = np.sqrt(np.maximum(squares - mean**2, 1e-12))
        score = np.where(count > 2, np.abs(value - mean) / deviation, 0.0)
        return {"device": batch["device"], "value": value, "score": np.round(score, 2)}


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    values = [20.0, 20.5, 19.5, 20.0, 35.0]
    readings = pa.record_batch({"device": ["d1"] * len(values), "value": values})
    scores = env.from_collection([readings]).key_by("device").process_batches(Scores(), SCORES)
    scores.filter(lambda row: row.score > 1.5).print()
    env.execute("anomaly scores")


if __name__ == "__main__":
    main()
