"""The latency of `benchmarks.engines.latency_job` at several rates: the points of a curve.

The task's number is that of the seconds at each rate.
"""

from __future__ import annotations

from benchmarks.engines.jobs import within
from benchmarks.engines.latency_job import RATE, at_sink
from benchmarks.engines.parts import RATES
from benchmarks.engines.percentiles import latency_figures
from benchmarks.measure import Measurement, emit
from benchmarks.program import parse_task

_WARM_UP_SECONDS = 3


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    at_sink(within(task, "warm-up"), round(_WARM_UP_SECONDS * RATE), RATE)
    figures: dict[str, float] = {}
    for rate in RATES:
        seen = at_sink(within(task, str(rate)), task.records * rate, float(rate))
        figures |= latency_figures(seen, f"at_{rate}_")
    emit(Measurement(records=task.records, figures=figures))


if __name__ == "__main__":
    main()
