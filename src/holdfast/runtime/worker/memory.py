"""The memory usage of a process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_PAGE = resource.getpagesize()


def resident_bytes() -> int:
    """Return the resident bytes of this process; on systems without ``/proc`` the peak so far."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
