"""One source, five branches, three sinks: still one Spark job per epoch.

``env.explain()`` shows what the graph is cut into: the levels are Spark stages, a chain is
what runs as nested calls in one subtask, and every exchange is a shuffle. The branches share the
stages, and the source is read once. Prints the plan and the three kinds of output, with the number
of the subtask in front of a printed record:

    job 'several branches': 3 levels, 8 exchanges
    large:1> (7, 900)
    1> total by customer 7: 1000
    2> total by country NO: 1040
"""

from holdfast.datastream import DataStream, StreamExecutionEnvironment

ORDERS = [
    # customer, country, amount
    (7, "NO", 100),
    (8, "IS", 250),
    (7, "NO", 900),
    (9, "NO", 40),
    (8, "IS", 1200),
]


def build(env: StreamExecutionEnvironment) -> DataStream:
    orders = env.from_collection(ORDERS).name("orders")

    # 1: large orders, with state per customer so that each customer is named once
    large = (
        orders.filter(lambda order: order[2] >= 500)
        .key_by(lambda order: order[0])
        .filter_with_state(lambda order, seen: (seen is None, True))
        .map(lambda order: (order[0], order[2]))
    )
    large.print("large")

    # 2 and 3: totals by customer and by country, brought together into one sink
    by_customer = (
        orders.map(lambda order: (order[0], order[2]))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .map(lambda pair: f"total by customer {pair[0]}: {pair[1]}")
    )
    by_country = (
        orders.map(lambda order: (order[1], order[2]))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .map(lambda pair: f"total by country {pair[0]}: {pair[1]}")
    )
    by_customer.union(by_country).print()

    # 4 and 5: the smallest and the largest order so far, collected by the program
    smallest = orders.key_by(lambda order: 0).min_by(2)
    largest = orders.key_by(lambda order: 0).max_by(2)
    return smallest.union(largest)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    extremes = build(env)
    print(env.explain("several branches"))
    collected = set(extremes.execute_and_collect("several branches"))
    print("smallest and largest:", min(o[2] for o in collected), max(o[2] for o in collected))


if __name__ == "__main__":
    main()
