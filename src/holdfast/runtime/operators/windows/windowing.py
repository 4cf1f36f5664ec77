"""The operator of windows, for any assigner and trigger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.datastream.time_domain import TimeDomain
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.fusion import Calling
from holdfast.runtime.operators.base import Pair, SubtaskParts
from holdfast.runtime.operators.functions import FunctionOperator, Method
from holdfast.runtime.operators.windows.choosing import make_windows
from holdfast.runtime.operators.windows.contexts import Surroundings
from holdfast.runtime.timer_queue import Timer


class WindowingOperator(FunctionOperator):
    """Puts records into windows, and fires the windows."""

    sides = True
    # the windows name the function that has failed
    timer_method = None

    def __init__(self, operator: PlannedOperator, function: Any, parts: SubtaskParts) -> None:
        """Choose the implementation for the assigner and the trigger."""
        super().__init__(operator, function, parts)
        assert self.key_context is not None
        self.time.lag = 1  # the last millisecond of a window must have passed
        around = Surroundings(
            operator.uid, parts.backend, self.key_context, self.time, self.context
        )
        self._windows = make_windows(function, around)

    @property
    def has_timers(self) -> bool:
        return True

    def on_timer(self, timer: Timer, domain: TimeDomain) -> Iterable[Pair]:
        return self._windows.on_timer(timer, domain)

    def _methods(self) -> tuple[Method, ...]:
        return ((Calling.STAMPED, self._windows.processing()),)
