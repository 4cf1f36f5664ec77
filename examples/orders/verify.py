"""Compares everything that the job wrote with what `reference` says: nothing lost, nothing twice.

Two things depend on how the stream was cut into epochs, in Flink as here, and are checked for what
holds under every cut:

- whether an order that arrives hours late is too late for its hour. Each must be in the statistics
  or among the late orders: not in both, not in neither;
- in which order the changes of a product's stock arrive. Each must be there once; every stock must
  follow from the one before it; and there must be a warning for each fall below ten, and no other.
"""

import io
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq
from msgspec.structs import asdict

from examples.orders.events import OrderEvent
from examples.orders.reference import Expected, Row, expect, purchases
from examples.orders.shop import Shop, all_deliveries
from examples.orders.sinks import BATCHES, PARQUET
from holdfast.filesystem import file_system_of, join

__all__ = ["Check", "read", "table", "verify", "verify_tables", "verify_topics"]

_LOW = 10
_BATCH = 100


class Check(NamedTuple):
    """One output, compared.

    Attributes:
        lost: how many rows are missing.
        twice: how many are there more often than they should be.
        wrong: how many should not be there at all.
        example: one of them.
    """

    output: str
    expected: int
    found: int
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    example: str = ""

    @property
    def passed(self) -> bool:
        """Whether the output is what it should be."""
        return not (self.lost or self.twice or self.wrong)


def verify(shop: Shop, directory: str | Path, *, initial_stock: int, subtasks: int) -> list[Check]:
    """Compare all outputs of a job that has read a whole shop."""
    expected = expect(all_deliveries(shop))
    place = os.fspath(directory)
    checks = _outputs(expected, lambda name: read(join(place, name)), initial_stock)
    rows = read_parquet(join(place, PARQUET))
    return [
        *checks,
        _batches("batches", expected, join(place, BATCHES), subtasks),
        _same("statuses in Parquet", expected.statuses, rows),
    ]


def _outputs(
    expected: Expected, rows: Callable[[str], list[Row]], initial_stock: int
) -> Iterator[Check]:
    """Compare all outputs but the batches, wherever their rows are."""
    late = rows("late")
    stock = sorted(rows("stock"), key=lambda row: (row["product"], row["number"]))
    statistics = purchases(expected.created.values(), {row["order_id"] for row in late})
    yield _same("statuses", expected.statuses, rows("statuses"))
    yield _same("rejected steps", expected.rejected, rows("rejected"))
    yield _same("statistics", statistics, rows("statistics"))
    yield _late("late orders", expected, late)
    yield _stock("stock changes", expected, stock)
    yield _same("final stock", _final(expected, initial_stock), _last(stock))
    yield _same("low stock", _falls(stock, initial_stock), rows("low_stock"))


def verify_topics(
    shop: Shop, topic: str, read_topic: Callable[[str], list[Row]], *, initial_stock: int
) -> list[Check]:
    """Compare the topics of all outputs but the batches."""
    expected = expect(all_deliveries(shop))
    checks = _outputs(expected, lambda name: read_topic(f"{topic}-{name}"), initial_stock)
    return [check._replace(output=f"{check.output} in Kafka") for check in checks]


def verify_tables(
    shop: Shop, tables: Mapping[str, list[Row]], *, initial_stock: int
) -> list[Check]:
    """Compare the tables of orders and stock with how a whole shop leaves them."""
    expected = expect(all_deliveries(shop))
    last = {row["order_id"]: row for row in expected.statuses}
    orders = [{k: v for k, v in row.items() if v is not None} for row in last.values()]
    return [
        _same("table of orders", orders, tables["orders"]),
        _same("table of stock", _final(expected, initial_stock), tables["stock"]),
    ]


def read(directory: str | Path) -> list[Any]:
    """The lines of all files that can be seen: rows, or lists of them."""
    lines = (line for data in _shown(directory) for line in data.splitlines())
    return list(map(msgspec.json.decode, lines))


def read_parquet(directory: str | Path) -> list[Row]:
    """The rows of all Parquet files that can be seen."""
    files = (pq.ParquetFile(io.BytesIO(data)) for data in _shown(directory))
    return [row for file in files for row in file.read().to_pylist()]


def _shown(directory: str | Path) -> Iterator[bytes]:
    """The contents of all files that can be seen."""
    files, path = file_system_of(os.fspath(directory))
    for file in files.list_directory(path):
        if not file.is_directory and not file.name.startswith("."):
            yield files.read(join(path, file.name))


def _same(output: str, expected: Iterable[Row], found: Iterable[Row]) -> Check:
    """Each expected row once, in any order, and no other."""
    return _compare(output, Counter(map(_text, expected)), Counter(map(_text, found)))


def _compare(output: str, expected: Counter[str], found: Counter[str]) -> Check:
    lost, surplus = expected - found, found - expected
    twice = Counter({row: count for row, count in surplus.items() if row in expected})
    wrong = surplus - twice
    example = next(
        (
            f"{what}: {row}"
            for what, rows in (("lost", lost), ("twice", twice), ("wrong", wrong))
            for row in rows
        ),
        "",
    )
    return Check(
        output,
        expected.total(),
        found.total(),
        lost.total(),
        twice.total(),
        wrong.total(),
        example,
    )


def _text(row: Any) -> str:
    return msgspec.json.encode(row, order="sorted").decode()


def _late(output: str, expected: Expected, late: list[Row]) -> Check:
    """Each at most once, and none that arrived within the five seconds that the job waits for."""
    may_be = [
        _late_row(expected.created[row["order_id"]])
        for row in late
        if row["order_id"] in expected.behind & expected.created.keys()
    ]
    unique = {_text(row): 1 for row in may_be}
    return _compare(output, Counter(unique), Counter(map(_text, late)))


def _late_row(order: OrderEvent) -> Row:
    total = sum(item.quantity * item.price for item in order.items)
    row = asdict(order)
    return {name: row[name] for name in ("order_id", "user_id", "timestamp")} | {
        "total": str(total)
    }


def _stock(output: str, expected: Expected, stock: list[Row]) -> Check:
    changes = Counter(
        _text([product, *change]) for product, all_ in expected.changes.items() for change in all_
    )
    found = Counter(_text([row["product"], row["order_id"], row["change"]]) for row in stock)
    return _compare(output, changes, found)


def _final(expected: Expected, initial_stock: int) -> Iterator[Row]:
    for product, changes in expected.changes.items():
        stock = initial_stock + sum(change for _, change in changes)
        yield {"product": product, "changes": len(changes), "stock": stock}


def _last(stock: list[Row]) -> Iterator[Row]:
    """The last stock of each product."""
    last = {row["product"]: row for row in stock}
    for product, row in last.items():
        yield {"product": product, "changes": row["number"], "stock": row["stock"]}


def _falls(stock: list[Row], initial_stock: int) -> Iterator[Row]:
    """The warnings that follow from the stock as it went; a stock that does not follow is one, too.

    So a gap or a repeat in the numbers shows here, as a row that was expected and is not found.
    """
    number, level, product = 0, initial_stock, None
    for row in stock:
        if row["product"] != product:
            number, level, product = 0, initial_stock, row["product"]
        number, before, level = number + 1, level, level + row["change"]
        if (row["number"], row["stock"]) != (number, level):
            yield {"product": product, "number": number, "stock": level, "but": row}
        if level < _LOW <= before:
            yield {"product": product, "number": number, "stock": level}


def _batches(output: str, expected: Expected, directory: str, subtasks: int) -> Check:
    """Each order in one batch; all batches full, but for the last of each subtask."""
    sizes: list[int] = []
    found: Counter[str] = Counter()
    for batch in read(directory):
        sizes.append(len(batch))
        found.update(map(_text, batch))
    wanted = Counter(_text(_order_row(order)) for order in expected.created.values())
    check = _compare(output, wanted, found)
    odd = sorted(size for size in sizes if size != _BATCH)
    if check.passed and (len(odd) > subtasks or any(size > _BATCH for size in odd)):
        return check._replace(wrong=len(odd), example=f"batches of {odd[:5]} orders")
    return check


def _order_row(order: OrderEvent) -> Row:
    items = [{**asdict(item), "price": str(item.price)} for item in order.items]
    return {**asdict(order), "items": items}


def table(checks: Collection[Check]) -> str:
    """The checks as a table."""
    head = ("output", "expected", "found", "lost", "twice", "wrong", "")
    rows = [
        (check.output, *(f"{n:,}" for n in check[1:6]), "ok" if check.passed else "DIFFERS")
        for check in checks
    ]
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if place in (0, 6) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, tuple("─" * width for width in widths), *rows)
    ]
    lines += [f"  {check.output}: {check.example}" for check in checks if not check.passed]
    return "\n".join(lines)
