"""`grown`: arrays with room for more rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

_FEWEST: Final = 1024


def grown(array: Array, used: int, needed: int, fill: Any = None) -> Array:
    """Return an array with the used items, and room for as many as are needed.

    ``fill``: the value of all other items. An array that is replaced is never changed again, so a
    capture may continue to read it.
    """
    if needed <= len(array):
        return array
    # NB: pages that were never written take no memory
    room = max(needed, len(array) + len(array) // 2, _FEWEST)
    if array.dtype == object or fill:
        larger = np.full(room, fill, array.dtype)
    else:
        larger = np.zeros(room, array.dtype)
    larger[:used] = array[:used]
    return larger
