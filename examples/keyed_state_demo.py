"""Orders per customer in keyed state, with a worker that is killed on the way.

Orders flow through two keyed operators: one keeps the account of each customer (number of orders,
running total, spending by category), the other the top spenders. A table grows by a line with every
epoch. At three quarters, a worker process is killed as by ``kill -9``. The job is restarted from
its last checkpoint, and computes again what came after it. (With ``holdfast.engine`` set to
``epochs``, Spark runs the lost task again instead, and there is no restart.)

Every state that an account went through is written as Parquet, by a ``DataFrameSink``: a row
appears when the checkpoint that contains it is complete. At the end the program reads the rows
back, compares them with a computation that knows neither Spark nor Holdfast, and exits with 1 if
anything was lost, counted twice, written twice or wrong:

    checked 120,000 orders of 1,000 customers: nothing lost, nothing counted twice
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as parquet

from holdfast.common import Configuration, RestartStrategies, Types
from holdfast.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import (
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from holdfast.driver.client import JobRunnerClient

CATEGORIES = ("books", "garden", "music", "toys")
TOP = 5
NOTABLE = 1_000_000


class Order(NamedTuple):
    """An order; amounts are in cents."""

    customer: str
    category: str
    cents: int


@dataclass
class Account:
    """A customer's account after an order."""

    customer: str
    orders: int
    cents: int
    largest: int
    books: int
    garden: int
    music: int
    toys: int


def make_order(number: int, customers: int) -> Order:
    """The order of that number: the same one whenever it is asked for."""
    dice = random.Random(number)
    customer = int(customers * dice.random() ** 3)  # some come much more often than others
    return Order(f"customer-{customer}", dice.choice(CATEGORIES), dice.randrange(100, 50_000))


class ReadOrder(MapFunction):
    """Makes orders out of numbers; at one of them, its process is killed, once."""

    def __init__(self, customers: int, crash_at: int | None, crashed: Path) -> None:
        self._customers = customers
        self._crash_at = crash_at
        self._crashed = crashed

    def map(self, value: int) -> Order:
        if value == self._crash_at and not self._crashed.exists():
            self._crashed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return make_order(value, self._customers)


class KeepAccount(KeyedProcessFunction):
    """The account of a customer in three kinds of state; gives it anew after each order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._totals: ValueState[tuple[int, int]] = runtime_context.get_state(
            ValueStateDescriptor("totals", Types.TUPLE([Types.LONG(), Types.LONG()]), (0, 0))
        )
        self._largest: ReducingState[int] = runtime_context.get_reducing_state(
            ReducingStateDescriptor("largest", max, Types.LONG())
        )
        self._spent: MapState[str, int] = runtime_context.get_map_state(
            MapStateDescriptor("spent by category", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context) -> Iterator[Account]:
        orders, cents = self._totals.value() or (0, 0)
        orders, cents = orders + 1, cents + value.cents
        self._totals.update((orders, cents))
        self._largest.add(value.cents)
        self._spent[value.category] = self._spent.get(value.category, 0) + value.cents
        spent = [self._spent.get(category, 0) for category in CATEGORIES]
        yield Account(value.customer, orders, cents, self._largest.get() or 0, *spent)


class TopSpenders(KeyedProcessFunction):
    """Keeps the best customers in a map; says when another one leads with a notable sum."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._best: MapState[str, int] = runtime_context.get_map_state(
            MapStateDescriptor("best", Types.STRING(), Types.LONG())
        )
        self._leader: ValueState[str] = runtime_context.get_state(
            ValueStateDescriptor("leader", Types.STRING())
        )

    def process_element(self, value: Account, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        self._best[value.customer] = value.cents
        ranking = sorted(self._best.items(), key=lambda entry: (-entry[1], entry[0]))
        for customer, _ in ranking[TOP:]:
            del self._best[customer]
        leader, cents = ranking[0]
        if cents >= NOTABLE and leader != self._leader.value():
            self._leader.update(leader)
            yield f"{leader} takes the lead with {cents / 100:,.2f}"


def run(orders: int, customers: int, crash: bool, folder: Path) -> None:
    """Run the job and report its epochs."""
    settings = Configuration()
    settings.set_integer("holdfast.epoch.max-records", max(1, orders // 16))
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(2)
    env.enable_checkpointing(200)
    env.get_checkpoint_config().set_checkpoint_storage_dir(str(folder / "checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    crashed = folder / "crashed"
    accounts = (
        env.from_source(NumberSequenceSource(1, orders), source_name="numbers")
        .map(ReadOrder(customers, orders * 3 // 4 if crash else None, crashed))
        .name("orders")
        .key_by(lambda order: order.customer, Types.STRING())
        .process(KeepAccount(), Account)
        .uid("accounts")
    )
    accounts.sink_to(DataFrameSink("parquet", str(folder / "accounts")))
    accounts.key_by(lambda _: 0).process(TopSpenders()).uid("top").print("leader")

    client = env.execute_async("orders per customer")
    assert isinstance(client, JobRunnerClient)
    report_epochs(client, crashed)
    client.get_job_execution_result().result()


def report_epochs(client: JobRunnerClient, crashed: Path) -> None:
    """Print a line for each epoch until the job is over."""
    print("  epoch      orders   seconds    state", flush=True)
    result = client.get_job_execution_result()
    shown = 0
    told = False
    while True:
        over = result.done()
        for epoch in client.get_epochs()[shown:]:
            shown += 1
            print(
                f"  {epoch.epoch:>5} {epoch.read:>11,} {epoch.seconds:>9.2f} "
                f"{epoch.state_bytes / 1024:>5.0f} kB",
                flush=True,
            )
        if crashed.exists() and not told:
            told = True
            print("  a worker process was killed; the job recovers", flush=True)
        if over:
            return
        time.sleep(0.1)


def expected_accounts(orders: int, customers: int) -> dict[str, Account]:
    """The accounts as a plain loop computes them."""
    accounts: dict[str, Account] = {}
    for number in range(1, orders + 1):
        customer, category, cents = make_order(number, customers)
        account = accounts.setdefault(customer, Account(customer, 0, 0, 0, 0, 0, 0, 0))
        account.orders += 1
        account.cents += cents
        account.largest = max(account.largest, cents)
        setattr(account, category, getattr(account, category) + cents)
    return accounts


def read_history(folder: Path) -> dict[str, list[Account]]:
    """Every state that the job gave an account, in the order of its orders."""
    history: defaultdict[str, list[Account]] = defaultdict(list)
    for row in parquet.read_table(folder).to_pylist():
        history[row["customer"]].append(Account(**row))
    for states in history.values():
        states.sort(key=lambda state: state.orders)
    return history


def differences(history: dict[str, list[Account]], expected: dict[str, Account]) -> Iterator[str]:
    """Whatever the job did other than it should have."""
    for customer in sorted(expected.keys() | history.keys()):
        states, wanted = history.get(customer, []), expected.get(customer)
        # NB: two sources feed an account, and after a restart their orders may mix in another way
        counts = [state.orders for state in states]
        if wanted is None:
            yield f"{customer} has an account but no orders"
        elif counts != list(range(1, wanted.orders + 1)):
            yield f"{customer}: {wanted.orders} orders were counted as {counts[-3:]}"
        elif states[-1] != wanted:
            yield f"{customer}: expected {wanted}, found {states[-1]}"


def show_top(history: dict[str, list[Account]]) -> None:
    """Print the customers who spent the most, as the job counted it."""
    last = sorted((states[-1] for states in history.values()), key=lambda state: -state.cents)
    print("top spenders:")
    for account in last[:TOP]:
        print(f"  {account.customer:<14} {account.orders:>6} orders {account.cents / 100:>14,.2f}")


def main(orders: int, customers: int, crash: bool) -> int:
    print(f"{orders:,} orders of {customers:,} customers; starting Spark", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        run(orders, customers, crash, Path(folder))
        history = read_history(Path(folder) / "accounts")
    show_top(history)
    expected = expected_accounts(orders, customers)
    wrong = list(differences(history, expected))
    for line in wrong[:10]:
        print(f"WRONG: {line}")
    if wrong:
        print(f"{len(wrong)} of {len(expected):,} accounts are not what they should be")
        return 1
    print(
        f"checked {orders:,} orders of {len(expected):,} customers: "
        "nothing lost, nothing counted twice"
    )
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Orders per customer, checked at the end.")
    parser.add_argument("--orders", type=int, default=120_000)
    parser.add_argument("--customers", type=int, default=1_000)
    parser.add_argument("--no-crash", action="store_true", help="do not kill a worker process")
    arguments = parser.parse_args()
    sys.exit(main(arguments.orders, arguments.customers, not arguments.no_crash))
