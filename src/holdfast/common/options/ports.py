"""The setting for the ports on which processes of a job listen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.common.config_options import ConfigOption
from holdfast.common.options.setting import Setting

#: lower ports are reserved for root
_LOWEST: Final = 1024
_HIGHEST: Final = 65535
_RANGE: Final = re.compile(r"(\d{4,5})(?:\s*-\s*(\d{4,5}))?", re.ASCII)


@dataclass(frozen=True)
class Ports:
    """A range of ports, both ends included; 0 means any free port."""

    first: int = 0
    last: int = 0

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


ANY_PORT: Final = Ports()


def _read(value: Any) -> Ports:
    if isinstance(value, Ports):
        return value
    found = _RANGE.fullmatch(str(value).strip())
    ports = Ports(int(found[1]), int(found[2] or found[1])) if found else ANY_PORT
    if not _LOWEST <= ports.first <= ports.last <= _HIGHEST:
        message = f"expected ports from {_LOWEST} to {_HIGHEST}, such as 50100-50200"
        raise ValueError(message)
    return ports


#: the ports on which the driver, slots and source processes may listen
PORT_RANGE: Final = Setting(ConfigOption("holdfast.port.range", "range of ports", _read, ANY_PORT))
