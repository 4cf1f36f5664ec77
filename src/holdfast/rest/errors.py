"""The errors of the API."""

from __future__ import annotations


class Refusal(Exception):
    """A request is rejected with a status and a message; it is not a failure of the server."""

    def __init__(self, status: int, message: str) -> None:
        """Set the status and the message."""
        super().__init__(message)
        self.status = status
        self.message = message
