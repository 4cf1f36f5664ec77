"""The first and the last point of time, in milliseconds: the bounds of a 64-bit integer."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_LONG_VALUE", "MIN_LONG_VALUE"]

#: the watermark after the last record
MAX_LONG_VALUE: Final = 2**63 - 1
#: the watermark before the first one; as a timestamp it means that there is none
MIN_LONG_VALUE: Final = -(2**63)
