"""The settings ``rest.*``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final

from holdfast.common import Configuration
from holdfast.common._settings import Setting
from holdfast.common.config_options import ConfigOptions
from holdfast.errors import JobDefinitionError

__all__ = ["RestOptions", "is_loopback", "rest_options"]

#: Flink's port; where it is taken, any
_DEFAULT_PORT: Final = 8081
_HIGHEST_PORT: Final = 65535

_ENABLED: Final = Setting(ConfigOptions.key("rest.enabled").boolean_type().default_value(True))
_ADDRESS: Final = Setting(
    ConfigOptions.key("rest.address").string_type().default_value("127.0.0.1"),
    older=("rest.bind-address",),
)
_PORT: Final = Setting(
    ConfigOptions.key("rest.port").int_type().no_default_value(),
    older=("rest.bind-port",),
    least=0,
)
_TOKEN: Final = Setting(ConfigOptions.key("rest.token").string_type().no_default_value())
_READ_TOKEN: Final = Setting(ConfigOptions.key("rest.read-token").string_type().no_default_value())
_HOSTS: Final = Setting(ConfigOptions.key("rest.allowed-hosts").string_type().default_value(""))
_RATE: Final = Setting(
    ConfigOptions.key("rest.requests-per-second").int_type().default_value(200), least=1
)
_BODY: Final = Setting(
    ConfigOptions.key("rest.max-body-bytes").int_type().default_value(65536), least=1
)


@dataclass(frozen=True)
class RestOptions:
    """How a server is reached, and who may do what there.

    Attributes:
        port: None for Flink's if it is free, and any if not; 0 for any.
        token: whoever has it may look and act.
        read_token: whoever has it may look.
        hosts: further names by which the server may be addressed.
        rate: requests per second, of all clients together.
        body: the largest request, in bytes.
    """

    enabled: bool = True
    address: str = "127.0.0.1"
    port: int | None = None
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    rate: int = 200
    body: int = 65536

    def __post_init__(self) -> None:
        if self.port is not None and self.port > _HIGHEST_PORT:
            message = f"rest.port must be at most {_HIGHEST_PORT}; got {self.port}"
            raise JobDefinitionError(message)
        if self.enabled and not is_loopback(self.address) and not (self.token or self.read_token):
            message = (
                f"rest.address is '{self.address}', which other machines may reach; set "
                "'rest.token' (to look and to act) or 'rest.read-token' (to look), leave the "
                "address at 127.0.0.1, or set 'rest.enabled' to false"
            )
            raise JobDefinitionError(message)

    @property
    def default_port(self) -> int:
        """The port to try first."""
        return _DEFAULT_PORT if self.port is None else self.port


def rest_options(configuration: Configuration) -> RestOptions:
    """Return what a configuration says.

    Raises:
        JobDefinitionError: when other machines could reach the server, and there is no token.
    """
    return RestOptions(
        enabled=_ENABLED.get(configuration),
        address=_ADDRESS.get(configuration),
        port=_PORT.find(configuration),
        token=_TOKEN.find(configuration),
        read_token=_READ_TOKEN.find(configuration),
        hosts=tuple(re.findall(r"[^\s,;]+", _HOSTS.get(configuration).lower())),
        rate=_RATE.get(configuration),
        body=_BODY.get(configuration),
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
