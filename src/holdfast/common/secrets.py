"""Masking of secrets in a configuration that is shown to users."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["MASK", "masked"]

MASK: Final = "******"
#: parts of keys whose values are secret, without dots, dashes and underscores; Flink's, and more
_SECRET: Final = (
    "password",
    "passwd",
    "secret",
    "token",
    "accesskey",
    "accountkey",
    "apikey",
    "servicekey",
    "privatekey",
    "credential",
    "authparams",
    "basicauth",
    "jaasconfig",
    "httpheaders",
    "sas",
)
_SEPARATORS: Final = re.compile(r"[-._\s]")
#: a password in an address, such as s3a://key:secret@bucket
_IN_ADDRESS: Final = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]*@")
#: a setting within a value, such as those of a list of parameters, or of a command line
_WITHIN: Final = re.compile(r"""([\w.-]+)(["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;]+)""")


def masked(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration with secrets masked: complete values, or parts of values."""
    return {key: MASK if _is_secret(key) else _masked(text) for key, text in configuration.items()}


def _is_secret(key: str) -> bool:
    plain = _SEPARATORS.sub("", key.lower())
    return any(part in plain for part in _SECRET)


def _masked(text: str) -> str:
    text = _IN_ADDRESS.sub(rf"\1:{MASK}@", text)
    return _WITHIN.sub(
        lambda found: f"{found[1]}{found[2]}{MASK}" if _is_secret(found[1]) else found[0], text
    )
