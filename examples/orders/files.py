"""Events as files, for those who want to see them, or to read them by another way."""

from pathlib import Path

import msgspec

from examples.orders.events import OrderEvent
from examples.orders.shop import PARTITIONS, Shop, deliveries

__all__ = ["decode_event", "encode_event", "write"]

#: slices in a file; every file begins in event time where the one before it ends
_SLICES = 250

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(OrderEvent).decode


def encode_event(event: OrderEvent) -> bytes:
    """An event as a line of JSON."""
    return _encode(event) + b"\n"


def decode_event(line: str) -> OrderEvent:
    """The event in a line of JSON."""
    return _decode(line)


def write(shop: Shop, directory: Path) -> int:
    """Write all events of a shop, as lines of JSON; returns how many were delivered."""
    if shop.slices is None:
        raise ValueError("a shop without an end does not fit into files; give it slices")
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
