"""The settings ``rest.*``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from holdfast.common.configuration import Configuration
from holdfast.common.options.setting import choice, count, flag, text
from holdfast.errors import JobDefinitionError

#: Flink's port; if it is in use, any free port
_DEFAULT_PORT: Final = 8081
_HIGHEST_PORT: Final = 65535


class SparkPage(Enum):
    """Who gets the REST API and the web UI below Spark's web UI."""

    #: nobody: they are not there
    OFF = "off"
    #: clients with a token
    TOKEN = "token"
    #: everybody who can open Spark's web UI may read; a token is needed to act
    READ = "read"


_ENABLED: Final = flag("rest.enabled", True)
_ADDRESS: Final = text("rest.address", "127.0.0.1", older=("rest.bind-address",))
_PORT: Final = count("rest.port", None, least=0, older=("rest.bind-port",))
_TOKEN: Final = text("rest.token")
_READ_TOKEN: Final = text("rest.read-token")
_HOSTS: Final = text("rest.allowed-hosts", "")
_RATE: Final = count("rest.requests-per-second", 200, least=1)
_BODY: Final = count("rest.max-body-bytes", 65536, least=1)
_SPARK_UI: Final = choice("rest.spark-ui", SparkPage, SparkPage.OFF)


@dataclass(frozen=True)
class RestOptions:
    """The address of the REST server, and its access control.

    Attributes:
        port: None for Flink's port if it is free, and any free port if not; 0 for any free port.
        token: token for read and write access.
        read_token: token for read access.
        hosts: further host names that are accepted in requests.
        rate: the limit of requests per second, for all clients together.
        body: the largest request body, in bytes.
        spark_ui: who gets the same below Spark's web UI.
        behind_spark: the server gets its requests from Spark's web UI.
    """

    enabled: bool = True
    address: str = "127.0.0.1"
    port: int | None = None
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    rate: int = 200
    body: int = 65536
    spark_ui: SparkPage = SparkPage.OFF
    behind_spark: bool = False

    def __post_init__(self) -> None:
        if self.port is not None and self.port > _HIGHEST_PORT:
            message = f"rest.port must be at most {_HIGHEST_PORT}; got {self.port}"
            raise JobDefinitionError(message)
        if self.enabled and not is_loopback(self.address) and not (self.token or self.read_token):
            message = (
                f"rest.address is '{self.address}', which is not a loopback address; set "
                "'rest.token' (read and write) or 'rest.read-token' (read only), leave the "
                "address at 127.0.0.1, or set 'rest.enabled' to false"
            )
            raise JobDefinitionError(message)
        if self.spark_ui is SparkPage.TOKEN and not (self.token or self.read_token):
            message = (
                "rest.spark-ui is TOKEN, and there is no token; set 'rest.token' or "
                "'rest.read-token', or set 'rest.spark-ui' to READ, which lets everybody read who "
                "can open Spark's web UI"
            )
            raise JobDefinitionError(message)

    def for_spark_ui(self) -> RestOptions:
        """Return the options of a second server, whose only client is Spark's web UI."""
        return replace(self, address="127.0.0.1", port=0, behind_spark=True)

    @property
    def default_port(self) -> int:
        """Return the port to try first."""
        return _DEFAULT_PORT if self.port is None else self.port


def rest_options(configuration: Configuration) -> RestOptions:
    """Return the REST settings of a configuration.

    Raises:
        JobDefinitionError: if others can reach the server, and there is no token.
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
        spark_ui=_SPARK_UI.get(configuration),
    )


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
