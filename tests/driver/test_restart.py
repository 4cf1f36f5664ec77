from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.configuration import Configuration
from holdfast.common.options.restart import configured_restart_strategy, restart_strategy
from holdfast.common.restart_strategy import RestartStrategies
from holdfast.driver.job.restart_policy import (
    GiveUp,
    Restart,
    RestartPolicy,
    make_policy,
)
from holdfast.errors import JobDefinitionError


def fail_at(policy: RestartPolicy, *times: int) -> list[int | None]:
    """The delay after each failure; None for the end."""
    decisions = [policy.on_failure(time) for time in times]
    return [d.after_ms if isinstance(d, Restart) else None for d in decisions]


def test_no_restart() -> None:
    decision = make_policy(RestartStrategies.no_restart()).on_failure(0)
    assert decision == GiveUp("no restart strategy is set, or it is 'none'")


def test_fixed_delay() -> None:
    policy = make_policy(RestartStrategies.fixed_delay_restart(2, 50))
    assert fail_at(policy, 1, 2) == [50, 50]
    decision = policy.on_failure(3)
    assert decision == GiveUp("it was restarted 2 times, which is the maximum")


def test_failure_rate() -> None:
    policy = make_policy(RestartStrategies.failure_rate_restart(2, 1000, 5))
    assert fail_at(policy, 0, 1, 1001, 1001, 2002) == [5, 5, 5, None, 5]
    policy = make_policy(RestartStrategies.failure_rate_restart(1, "1 min", 5))
    assert fail_at(policy, 0) == [5]
    assert policy.on_failure(60_000) == GiveUp("it failed 2 times within 1 min; 1 allowed")


def test_exponential_delay() -> None:
    strategy = RestartStrategies.exponential_delay_restart(100, 500, 2.0, 1000, 0.0)
    policy = make_policy(strategy)
    assert fail_at(policy, 0, 200, 500, 1000, 1600) == [100, 200, 400, 500, 500]
    # the fifth attempt starts at 2100 and has run for the threshold at 3100
    assert fail_at(policy, 3099, 4599) == [500, 100]


def test_exponential_delay_for_a_long_time() -> None:
    policy = make_policy(RestartStrategies.exponential_delay_restart())
    assert fail_at(policy, *[0] * 2000)[-1] == 60_000


def test_jitter_stays_in_its_bounds() -> None:
    strategy = RestartStrategies.exponential_delay_restart(1000, 10**6, 3.0, 10**6, 0.5)
    seconds = {fail_at(make_policy(strategy, Random(seed)), 0, 0)[1] for seed in range(200)}
    delays = sorted(delay for delay in seconds if delay is not None)
    assert delays[0] >= 1500
    assert delays[-1] <= 4500
    assert len(delays) > 100


def test_attempts_before_reset() -> None:
    strategy = configured_restart_strategy(
        Configuration.from_dict(
            {
                "restart-strategy.type": "exponential-delay",
                "restart-strategy.exponential-delay.initial-backoff": "10 ms",
                "restart-strategy.exponential-delay.backoff-multiplier": 1,
                "restart-strategy.exponential-delay.reset-backoff-threshold": "1 s",
                "restart-strategy.exponential-delay.jitter-factor": 0,
                "restart-strategy.exponential-delay.attempts-before-reset-backoff": "2",
            }
        )
    )
    policy = make_policy(strategy)
    # the third failure comes after a reset
    assert fail_at(policy, 0, 100, 1110, 1200) == [10, 10, 10, 10]
    assert policy.on_failure(1300) == GiveUp("it failed 3 times in a row; 2 allowed")


def test_the_default_is_that_of_flink_2() -> None:
    assert fail_at(make_policy(restart_strategy(Configuration())), 0) == [None]
    checkpoints = Configuration({"execution.checkpointing.interval": "1 s"})
    delays = fail_at(make_policy(restart_strategy(checkpoints), Random(1)), 0, 0, 0, 0)
    for delay, expected in zip(delays, [1000, 1500, 2250, 3375], strict=True):
        assert delay == pytest.approx(expected, rel=0.11)


def test_not_a_strategy() -> None:
    with pytest.raises(JobDefinitionError, match="not a restart strategy: 'never'"):
        make_policy("never")  # type: ignore[arg-type]


TIMES = st.lists(st.integers(0, 200), max_size=40).map(sorted)


@given(TIMES, st.integers(1, 5), st.integers(0, 100))
def test_failure_rate_is_a_sliding_window(times: list[int], most: int, interval: int) -> None:
    policy = make_policy(RestartStrategies.failure_rate_restart(most, interval, 7))
    expected = [
        7 if sum(time - interval <= t for t in times[: n + 1]) <= most else None
        for n, time in enumerate(times)
    ]
    assert fail_at(policy, *times) == expected


@given(TIMES, st.integers(0, 5))
def test_fixed_delay_counts(times: list[int], attempts: int) -> None:
    policy = make_policy(RestartStrategies.fixed_delay_restart(attempts, 7))
    assert fail_at(policy, *times) == [7 if n < attempts else None for n in range(len(times))]


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(0, 9), st.floats(0, 1))
def test_exponential_delay_against_a_model(runs: list[int], seed: int, jitter: float) -> None:
    """``runs``: how long each attempt lasted."""
    strategy = RestartStrategies.exponential_delay_restart(10, 200, 2.0, 250, jitter)
    policy = make_policy(strategy, Random(seed))
    now, power = 0, 0
    for n, run in enumerate(runs):
        now += run
        power = 0 if n and run >= 250 else power
        decision = policy.on_failure(now)
        assert isinstance(decision, Restart)
        middle = 10 * 2**power
        assert decision.after_ms >= max(10, min(200, int(middle * (1 - jitter))))
        assert decision.after_ms <= min(200, middle * (1 + jitter))
        now, power = now + decision.after_ms, power + 1
