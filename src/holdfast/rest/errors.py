"""What the API answers when it does not do what it was asked."""

from __future__ import annotations

__all__ = ["Answer"]


class Answer(Exception):
    """Ends a request with a status and a message; no failure of the server."""

    def __init__(self, status: int, message: str) -> None:
        """Say what is wrong."""
        super().__init__(message)
        self.status = status
        self.message = message
