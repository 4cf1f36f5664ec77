"""Events as files, for those who want to see them, or to read them by another way."""

from pathlib import Path

from examples.orders.events import encode_event
from examples.orders.generator import PARTITIONS, Shop, deliveries

__all__ = ["write"]

#: slices in a file; every file begins in event time where the one before it ends
_SLICES = 250


def write(shop: Shop, directory: Path) -> int:
    """Write all events of a shop, as lines of JSON; returns how many were delivered."""
    assert shop.slices is not None, "a shop that never closes does not fit into files"
    directory.mkdir(parents=True, exist_ok=True)
    written = 0
    for first in range(0, shop.slices, _SLICES):
        with (directory / f"events-{first:07d}.jsonl").open("wb") as file:
            for number in range(first, min(first + _SLICES, shop.slices)):
                for partition in range(PARTITIONS):
                    arriving = deliveries(shop, partition, number)
                    file.writelines(map(encode_event, arriving))
                    written += len(arriving)
    return written
