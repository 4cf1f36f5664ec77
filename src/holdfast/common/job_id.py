"""The identifier of a job."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field

__all__ = ["JobID"]


@dataclass(frozen=True, order=True, repr=False)
class JobID:
    """A job's identifier: 32 hexadecimal digits, random unless given."""

    hex: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        if re.fullmatch(r"[0-9a-f]{32}", self.hex) is None:
            message = f"a job id has 32 lower-case hexadecimal digits; got {self.hex!r}"
            raise ValueError(message)

    @staticmethod
    def generate() -> JobID:
        """Return a new random id."""
        return JobID()

    @staticmethod
    def from_hex_string(hex_string: str) -> JobID:
        """Return the id that `to_hex_string` wrote."""
        return JobID(hex_string.lower())

    def to_hex_string(self) -> str:
        """Return the 32 hexadecimal digits."""
        return self.hex

    def __str__(self) -> str:
        return self.hex

    def __repr__(self) -> str:
        return f"JobID({self.hex!r})"
