"""How much of the process clients of its server may use."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Limits"]

_MOST_CONNECTIONS: Final = 256
#: the part of the process's descriptors that connections may use
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
        """The largest number of connections that follow jobs live."""
        return max(1, self.connections // 2)
