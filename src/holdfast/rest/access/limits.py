"""The resource limits for clients of a server."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from typing import Final

_MOST_CONNECTIONS: Final = 256
#: connections may use one part in this many of the process's descriptors
_PART: Final = 4


def _connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(1, min(_MOST_CONNECTIONS, descriptors // _PART))


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Attributes:
        connections: the largest number of connections: a quarter of the descriptors that the
            process may have (``ulimit -n``), and at most 256.
        seconds: how long a client may take to send a request or to read an answer.
    """

    connections: int = field(default_factory=_connections)
    seconds: float = 20.0

    @property
    def streams(self) -> int:
        """Return the largest number of live streams."""
        return max(1, self.connections // 2)
