"""Spark DataFrames on both sides: rows in, stateful Python in the middle, Parquet out.

The first job reads a batch DataFrame, numbers the purchases of each user in keyed state and writes
Parquet with Spark's own writer; it ends when the rows are read. The second one reads a streaming
DataFrame, a folder that files are dropped into, and the program takes the first three results. Any
source and any format that Spark knows will do. Prints:

    ann bought 5, 5 in all
    ann bought 7, 12 in all
    zoe bought 30, 30 in all
    from the stream: ann #1, ann #2, zoe #1
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.common import Row, Types
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.state import ValueState, ValueStateDescriptor

PURCHASES = [("ann", 5), ("zoe", 30), ("ann", 7)]
COLUMNS = "user string, amount long"


@dataclass
class Bill:
    """A purchase with its number, and what the user has spent so far."""

    user: str
    number: int
    amount: int
    total: int


class MakeBill(KeyedProcessFunction):
    """Keeps the number of purchases and the total of each user."""

    def open(self, runtime_context: RuntimeContext) -> None:
        types = Types.TUPLE([Types.LONG(), Types.LONG()])
        self._spent: ValueState[tuple[int, int]] = runtime_context.get_state(
            ValueStateDescriptor("number and total", types, default_value=(0, 0))
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Bill]:
        number, total = self._spent.value() or (0, 0)
        number, total = number + 1, total + value.amount
        self._spent.update((number, total))
        yield Bill(value.user, number, value.amount, total)


def batch_to_parquet(spark: SparkSession, folder: Path) -> None:
    purchases = spark.createDataFrame(PURCHASES, COLUMNS)
    env = StreamExecutionEnvironment.get_execution_environment()
    bills = env.from_dataframe(purchases).key_by(lambda row: row.user).process(MakeBill(), Bill)
    bills.sink_to(DataFrameSink("parquet", str(folder / "bills")))
    env.execute("batch to parquet")

    written: DataFrame = spark.read.parquet(str(folder / "bills"))
    for row in written.orderBy("user", "number").collect():
        print(f"{row.user} bought {row.amount}, {row.total} in all")


def stream_to_program(spark: SparkSession, folder: Path) -> None:
    (folder / "in").mkdir()
    for number, (user, amount) in enumerate(PURCHASES):
        text = json.dumps({"user": user, "amount": amount})
        (folder / "in" / f"{number}.json").write_text(text)
    purchases = spark.readStream.schema(COLUMNS).json(str(folder / "in"))
    env = StreamExecutionEnvironment.get_execution_environment()
    bills = env.from_dataframe(purchases).key_by(lambda row: row.user).process(MakeBill(), Bill)
    # A stream never ends: the limit makes the job end after three results.
    first = bills.execute_and_collect("stream to program", limit=len(PURCHASES))
    names = sorted(f"{bill.user} #{bill.number}" for bill in first)
    print(f"from the stream: {', '.join(names)}")


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        batch_to_parquet(spark, Path(folder))
        stream_to_program(spark, Path(folder))


if __name__ == "__main__":
    main()
