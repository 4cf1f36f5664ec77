"""Errors of `pyarrow.fs`: told in one line with the settings to check, and told apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from holdfast.filesystem.base import cause_of

#: what pyarrow raises; the last two are what fsspec raises
FAILURES: Final = (OSError, pa.ArrowException, RuntimeError, ValueError)


@dataclass(frozen=True)
class StoreErrors:
    """How the errors of a store are told.

    Attributes:
        essence: returns the essence of a message.
        advice: patterns of messages, each with what to do about it.
    """

    essence: Callable[[str], str] = str
    advice: tuple[tuple[str, str], ...] = ()

    def explain(self, error: Exception) -> str:
        """Return the message in one line, with the settings to check."""
        message = cause_of(error)
        kind, _, told = message.partition(": ")
        told = " ".join(self.essence(told).split())
        for pattern, advice in self.advice:
            if re.search(pattern, message, re.IGNORECASE):
                return f"{kind}: {told}; {advice}"
        return f"{kind}: {told}"


S3_ERRORS: Final = StoreErrors(
    advice=(
        (
            "ACCESS_DENIED|INVALID_ACCESS_KEY|InvalidAccessKeyId|SIGNATURE|HTTP status 40[13]",
            "check fs.s3a.access.key and fs.s3a.secret.key",
        ),
        ("NETWORK_CONNECTION|curlCode", "check the network, and fs.s3a.endpoint if it is set"),
    )
)


def unless_missing(call: Callable[[str], None], path: str, exists: Callable[[str], bool]) -> None:
    """Ignore errors about missing files; file systems report them differently."""
    try:
        call(path)
    except FAILURES:
        if exists(path):
            raise


def check_exists(look: Callable[[], Any], message: str) -> None:
    """Raise an error if there is no bucket where ``look`` looks; pyarrow would make one."""
    try:
        found = look()
    except FAILURES:
        return  # NB: who can write to a bucket need not be allowed to look at it
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(2, f"{message}; create it, or correct the address")
