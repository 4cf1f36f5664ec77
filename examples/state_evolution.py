"""A job is stopped, its classes change, and it goes on with the state it had.

The first job keeps an `Account` per customer and is stopped with a savepoint. The second one knows
accounts that have a currency, count in fractions of cents, and have no list of notes any more: it
reads the saved accounts as its own. The third one has turned the number into a text: it is refused
before it starts, with the state, both types, and the field that does not fit. Prints:

    1000 customers have gone on with what they had
    refused: cents: long cannot be read as string
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.common import Configuration
from holdfast.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueState, ValueStateDescriptor
from holdfast.state.errors import StateMigrationError

CUSTOMERS = 1000
ORDERS = 20_000
CENTS = 5


@dataclass
class Account:
    """What the first job keeps of a customer."""

    orders: int
    cents: int
    notes: list[str] = field(default_factory=list)


@dataclass
class NewAccount:
    """The same for the second job: a field more, a field less, a wider number."""

    orders: int
    cents: float
    currency: str = "EUR"


@dataclass
class TextAccount:
    """What no saved account can be read as."""

    orders: int
    cents: str


class Accounts(KeyedProcessFunction):
    """Keeps the account of each customer.

    The descriptor is made here and not in ``open``: so its type is known before the job starts.
    """

    def __init__(self, account_type: Any) -> None:
        self._type = account_type
        self._descriptor = ValueStateDescriptor("account", account_type)
        self._account: ValueState[Any]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._account = runtime_context.get_state(self._descriptor)

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, Any]]:
        account = self._account.value() or self._type(0, 0)
        account.orders += 1
        account.cents += CENTS
        self._account.update(account)
        yield ctx.get_current_key(), account


def accounts(account_type: Any, savepoint: str | None = None) -> DataStream:
    settings = {"holdfast.epoch.max-records": "1000"}
    if savepoint is not None:
        settings["execution.state-recovery.path"] = savepoint
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(2).set_buffer_timeout(20)
    orders = env.from_source(NumberSequenceSource(1, ORDERS), source_name="orders").uid("orders")
    return (
        orders.key_by(lambda n: n % CUSTOMERS, int).process(Accounts(account_type)).uid("accounts")
    )


def stop(stream: DataStream, directory: Path) -> str:
    """Start the job, and stop it with a savepoint after its first epoch."""
    client = stream.get_execution_environment().execute_async("accounts")
    while not client.get_epochs():
        time.sleep(0.01)
    return client.stop_with_savepoint(False, str(directory)).result()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        savepoint = stop(accounts(Account), Path(folder))
        last = dict(accounts(NewAccount, savepoint).execute_and_collect("accounts"))
        each = ORDERS // CUSTOMERS
        assert all(a == NewAccount(each, float(each * CENTS)) for a in last.values()), last
        print(f"{len(last)} customers have gone on with what they had")
        try:
            accounts(TextAccount, savepoint).execute_and_collect("accounts")
        except StateMigrationError as error:
            # The whole message names the operator, the state and both types.
            print(f"refused: {': '.join(str(error).rsplit(': ', 2)[-2:])}")


if __name__ == "__main__":
    main()
