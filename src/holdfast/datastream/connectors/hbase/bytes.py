"""The encoding of HBase's ``Bytes`` class, so that Java programs can read values.

============  ====================================================================
type          bytes
============  ====================================================================
string        UTF-8
bytes         as they are
boolean       one byte: -1 is true, 0 is false
byte          one byte, two's complement
short         2 bytes, big-endian, two's complement; int: 4, long: 8
float         4 bytes, big-endian, IEEE 754; double: 8
big integer   two's complement, big-endian, as few bytes as do
decimal       its scale as an int, then its unscaled value as a big integer
timestamp     milliseconds since 1970, as a long; a time without a zone is UTC
date          milliseconds of its midnight since 1970 in UTC, as a long
time          milliseconds of the day, as a long
============  ====================================================================

Negative numbers sort after positive ones in HBase, which compares bytes without a sign.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from holdfast.common import Instant, TypeInformation, Types


class Coding(NamedTuple):
    """How values of a type are written and read; not used for None."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def coding_of(type_info: TypeInformation) -> Coding | None:
    """Return how a type is written; None if it has no encoding in HBase."""
    return _CODINGS.get(type_info)


def _packed(layout: str) -> Coding:
    code = struct.Struct(layout)
    return Coding(code.pack, lambda data: code.unpack(data)[0])


def _boolean_to_bytes(value: bool) -> bytes:
    return b"\xff" if value else b"\x00"


def _boolean_from_bytes(data: bytes) -> bool:
    (number,) = data
    return number != 0


def _integer_to_bytes(value: int) -> bytes:
    # one bit more than the magnitude, for the sign; -128 needs no more than 127 does
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


def _integer_from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


def _decimal_to_bytes(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        message = f"HBase has no decimal {value}; it knows finite ones only"
        raise ValueError(message)
    unscaled = int("".join(map(str, digits)))
    return _INT.pack(-exponent) + _integer_to_bytes(-unscaled if sign else unscaled)


def _decimal_from_bytes(data: bytes) -> Decimal:
    (scale,) = _INT.unpack_from(data)
    unscaled = _integer_from_bytes(data[4:])
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, as the values
_MILLI: Final = datetime.timedelta(milliseconds=1)


def _timestamp_to_bytes(value: datetime.datetime) -> bytes:
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return _LONG.pack((value - _EPOCH) // _MILLI)


def _timestamp_from_bytes(data: bytes) -> datetime.datetime:
    (millis,) = _LONG.unpack(data)
    return _EPOCH + int(millis) * _MILLI


def _date_to_bytes(value: datetime.date) -> bytes:
    return _LONG.pack((value - _EPOCH.date()) // _MILLI)


def _date_from_bytes(data: bytes) -> datetime.date:
    return _timestamp_from_bytes(data).date()


def _time_to_bytes(value: datetime.time) -> bytes:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _LONG.pack(seconds * 1000 + value.microsecond // 1000)


def _time_from_bytes(data: bytes) -> datetime.time:
    return _timestamp_from_bytes(data).time()


def _instant_to_bytes(value: Instant) -> bytes:
    return _LONG.pack(value.to_epoch_milli())


def _instant_from_bytes(data: bytes) -> Instant:
    return Instant.of_epoch_milli(_LONG.unpack(data)[0])


_TEXT = Coding(str.encode, bytes.decode)
_CODINGS: Final[dict[TypeInformation, Coding]] = {
    Types.STRING(): _TEXT,
    Types.CHAR(): _TEXT,
    Types.PRIMITIVE_ARRAY(Types.BYTE()): Coding(bytes, bytes),
    Types.BOOLEAN(): Coding(_boolean_to_bytes, _boolean_from_bytes),
    Types.BYTE(): _packed(">b"),
    Types.SHORT(): _packed(">h"),
    Types.INT(): _packed(">i"),
    Types.LONG(): _packed(">q"),
    Types.FLOAT(): _packed(">f"),
    Types.DOUBLE(): _packed(">d"),
    Types.BIG_INT(): Coding(_integer_to_bytes, _integer_from_bytes),
    Types.BIG_DEC(): Coding(_decimal_to_bytes, _decimal_from_bytes),
    Types.SQL_TIMESTAMP(): Coding(_timestamp_to_bytes, _timestamp_from_bytes),
    Types.SQL_DATE(): Coding(_date_to_bytes, _date_from_bytes),
    Types.SQL_TIME(): Coding(_time_to_bytes, _time_from_bytes),
    Types.INSTANT(): Coding(_instant_to_bytes, _instant_from_bytes),
}
