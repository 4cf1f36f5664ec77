"""Predefined conditions for retrying an asynchronous call."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Return whether there is no result."""
    return not result


def has_exception_predicate(error: BaseException | None) -> bool:
    """Return whether there was an exception of any kind."""
    return error is not None


def exception_type_predicate(
    error: BaseException | None,
    expected_error_type: type[BaseException] | tuple[type[BaseException], ...],
) -> bool:
    """Return whether the exception is of that type; for ``functools.partial`` or a lambda."""
    return isinstance(error, expected_error_type)
