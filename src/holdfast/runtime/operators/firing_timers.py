"""Where timers fire: an operator is called for each timer that is due, and its results go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.datastream.time_domain import TimeDomain
from holdfast.runtime.event_time import OperatorTime
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.timer_queue import Timer
from holdfast.runtime.worker.logs import at_work
from holdfast.state.live.mutations import MutationWatch

#: a result, and its timestamp
_Pair = tuple[Any, int | None]
#: called for a timer that is due
OnTimer = Callable[[Timer, TimeDomain], Iterable[_Pair]]

#: how many results are passed to the next operator at a time
_BATCH = 1000


def fire_timers(
    time: OperatorTime,
    domain: TimeDomain,
    on_timer: OnTimer,
    method: str | None,
    report: FailureReporter,
    emit: Callable[[Iterable[_Pair]], None],
) -> None:
    """Call ``on_timer`` for each timer that is due, also for those that are set meanwhile.

    ``method`` is named in the failure of a timer; None if the error names it itself.
    """
    pairs: list[_Pair] = []
    with at_work(report):
        for timer in time.due(domain):
            try:
                pairs += on_timer(timer, domain)
            except Exception as error:
                report.at_timer(method, timer.key, timer.timestamp, error)
            if len(pairs) >= _BATCH:
                emit(pairs)
                pairs = []
    emit(pairs)


def checked(on_timer: OnTimer, watch: MutationWatch | None) -> OnTimer:
    """Check for state that was changed in place after each timer, if there is a watch."""
    if watch is None:
        return on_timer

    def call(timer: Timer, domain: TimeDomain) -> Iterable[_Pair]:
        pairs = list(on_timer(timer, domain))
        watch.check()
        return pairs

    return call
