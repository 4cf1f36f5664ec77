"""Placeholder."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from holdfast.datastream.functions import SinkFunction


class TwoPhaseCommitSinkFunction(SinkFunction):
    """Placeholder."""

    @abstractmethod
    def accept(self, value: Any, context: Any) -> None: ...
    @abstractmethod
    def end_epoch(self) -> None: ...
    @abstractmethod
    def epoch_accepted(self) -> None: ...
    @abstractmethod
    def abandon_epoch(self) -> None: ...
