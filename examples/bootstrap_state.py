"""A job starts with balances that it has never seen a payment of.

The balances of all customers are in a DataFrame, as they would be in a warehouse. They become a
savepoint, which the executors write; the job starts from it, and its first payment of a customer
changes the balance that the DataFrame had. Afterwards the job's own savepoint is read as a
DataFrame again. Prints:

    1000 payments were made of the balances in the warehouse
    customer-7 has 107 cents left
    1000 of 5000 balances have changed
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.common import Configuration, Types
from holdfast.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.savepoint import KeyedState, Savepoint, SavepointWriter, compare

CUSTOMERS = 5000
PAYMENTS = 1000
#: the descriptor for the program that makes the state and for the job that uses it
BALANCE = ValueStateDescriptor("balance", Types.LONG())


class Pay(KeyedProcessFunction):
    """Takes payments off balances."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._balance = runtime_context.get_state(BALANCE)

    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        customer, cents = value
        balance = self._balance.value()
        if balance is not None and balance >= cents:
            self._balance.update(balance - cents)
            yield customer, balance - cents


def bootstrap(spark: SparkSession, path: Path) -> str:
    """Make a savepoint of what the warehouse has."""
    balances = spark.range(CUSTOMERS).selectExpr(
        "concat('customer-', id) as customer", "200 + id as cents"
    )
    state = KeyedState(BALANCE, balances, key="customer", value="cents")
    return SavepointWriter(job_name="payments").with_operator("accounts", state).write(path)


def pay(savepoint: str, directory: Path) -> dict[str, int]:
    """Run the job from there; it takes its last checkpoint when everything is paid."""
    config = Configuration()
    config.set_string("execution.state-recovery.path", savepoint)
    config.set_string("execution.checkpointing.interval", "10 s")
    config.set_string("execution.checkpointing.dir", str(directory))
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    payments = env.from_collection([(f"customer-{n}", 100) for n in range(PAYMENTS)])
    paid = payments.key_by(lambda payment: payment[0]).process(Pay()).uid("accounts")
    return dict(paid.execute_and_collect("payments"))


def main() -> None:
    """Bootstrap, run, and look at what has become of the state."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        made = bootstrap(spark, Path(folder) / "made")
        left = pay(made, Path(folder) / "checkpoints")
        print(f"{len(left)} payments were made of the balances in the warehouse")
        print(f"customer-7 has {left['customer-7']} cents left")
        look(spark, made, left, Path(folder))


def look(spark: SparkSession, made: str, left: dict[str, int], folder: Path) -> None:
    """Compare what was made with the same after all payments."""
    before = Savepoint.read(made)
    frame = before.keyed_state("accounts", "balance").to_dataframe(spark)
    paid = spark.createDataFrame(list(left.items()), "key string, cents bigint")
    new = frame.join(paid, "key", "left").selectExpr("key", "coalesce(cents, value) as value")
    state = KeyedState(BALANCE, new)
    after = SavepointWriter().with_operator("accounts", state).write(folder / "after")
    (change,) = compare(before, Savepoint.read(after))
    print(f"{change.changed} of {frame.count()} balances have changed")


if __name__ == "__main__":
    main()
