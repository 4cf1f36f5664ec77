"""Orders that get the name of their customer from a slow service: an asynchronous function.

Each call waits a while, and now and then the service is busy, so that the call is tried again. Two
thousand orders, one after the other, would wait for two minutes; here up to five hundred wait at
once, and the results keep the order of the records. Prints

    order 0 is for customer A0
    order 1 is for customer B1
    ...
    order 1999 is for customer D99
    2000 orders have their customers, and hundreds waited at once
"""

import asyncio
import random

from holdfast.common import Time
from holdfast.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    RuntimeContext,
    StreamExecutionEnvironment,
)

ORDERS = 2000


class BusyError(Exception):
    """The service has no time."""


class Service:
    """What would be a database or a web service."""

    async def name_of(self, customer: int) -> str:
        await asyncio.sleep(random.uniform(0.1, 0.4))
        if random.random() < 0.05:
            raise BusyError
        return name_of(customer)


def name_of(customer: int) -> str:
    return f"{'ABCD'[customer % 4]}{customer}"


class Lookup(AsyncFunction[int, tuple[int, str, int]]):
    """The customer of each order, and how many calls were under way."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.service = Service()
        self.under_way = 0

    async def async_invoke(self, value: int) -> list[tuple[int, str, int]]:
        self.under_way += 1
        at_once = self.under_way
        try:
            return [(value, await self.service.name_of(value % 100), at_once)]
        finally:
            self.under_way -= 1

    def timeout(self, value: int) -> list[tuple[int, str, int]]:
        return [(value, "nobody", 0)]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = AsyncRetryStrategy.fixed_delay(
        max_attempts=10,
        backoff_time_millis=20,
        result_predicate=None,
        exception_predicate=lambda error: isinstance(error, BusyError),
    )
    named = AsyncDataStream.ordered_wait_with_retry(
        env.from_collection(range(ORDERS)), Lookup(), Time.seconds(60), strategy, capacity=500
    ).set_parallelism(1)
    with named.execute_and_collect("lookup") as results:
        found = list(results)
    lines = [f"order {order} is for customer {name}" for order, name, _ in found]
    print("\n".join([*lines[:2], "...", lines[-1]]))
    assert [(order, name) for order, name, _ in found] == [
        (order, name_of(order % 100)) for order in range(ORDERS)
    ]
    most = max(at_once for _, _, at_once in found)
    assert 100 < most <= 500
    print(f"{ORDERS} orders have their customers, and hundreds waited at once")


if __name__ == "__main__":
    main()
