"""Logarithmic axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LogScale", "short"]


@dataclass(frozen=True)
class LogScale:
    """Places values between ``low`` and ``high`` from ``start`` to ``end``, by their logarithm."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value.

        >>> LogScale(1, 100, 0, 200).at(10)
        100.0
        """
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return values to write at the axis: powers of ten, and more if there are few of them.

        >>> LogScale(0.3, 2000, 0, 1).ticks()
        [1.0, 10.0, 100.0, 1000.0]
        >>> LogScale(0.4, 4, 0, 1).ticks()
        [0.5, 1.0, 2.0]
        """
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1,), (1, 2, 5)):
            found = [step * 10.0**power for power in range(low, high + 1) for step in steps]
            inside = [value for value in found if self.low <= value <= self.high]
            if len(inside) > 2:
                break
        return inside


def short(value: float) -> str:
    """Write a number with few letters.

    >>> [short(value) for value in (0.345, 1.0, 12.34, 1234.0, 250_000.0, 1_300_000.0)]
    ['0.34', '1', '12', '1,234', '250 k', '1.3 M']
    """
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.0f} k"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}"
