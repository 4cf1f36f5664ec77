import pickle
from datetime import timedelta

import pytest

from holdfast.common import Duration, RestartStrategies, RestartStrategyConfiguration

second = timedelta(seconds=1)


@pytest.mark.parametrize("delay", [1000, second, Duration.of_seconds(1), "1 s"])
def test_fixed_delay(delay):
    strategy = RestartStrategies.fixed_delay_restart(3, delay)
    assert strategy.get_restart_attempts() == 3
    assert strategy.get_delay_between_attempts_interval() == second
    assert strategy == RestartStrategies.fixed_delay_restart(
        restart_attempts=3, delay_between_attempts=1000
    )


def test_failure_rate():
    strategy = RestartStrategies.failure_rate_restart(3, "5 min", 1000)
    assert strategy.get_max_failure_rate() == 3
    assert strategy.get_failure_interval() == timedelta(minutes=5)
    assert strategy.get_delay_between_attempts_interval() == second


def test_exponential_delay():
    strategy = RestartStrategies.exponential_delay_restart("1 s", "1 min", 2, "1 h", 0.2)
    assert strategy.initial_backoff == second
    assert strategy.max_backoff == timedelta(minutes=1)
    assert strategy.backoff_multiplier == 2
    assert strategy.reset_backoff_threshold == timedelta(hours=1)
    assert strategy.jitter_factor == 0.2


STRATEGIES = [
    (RestartStrategies.no_restart(), "Restart deactivated."),
    (RestartStrategies.fall_back_restart(), "Cluster level default restart strategy"),
    (
        RestartStrategies.fixed_delay_restart(3, "10 s"),
        "Restart with fixed delay (10 s). #3 restart attempts.",
    ),
    (
        RestartStrategies.failure_rate_restart(3, "5 min", "10 s"),
        "Failure rate restart with maximum of 3 failures within interval 5 min "
        "and fixed delay 10 s.",
    ),
    (
        RestartStrategies.exponential_delay_restart(),
        "Restart with exponential delay: starting at 1 s, increasing by 1.5, with maximum 1 min. "
        "Delay resets after 1 h with jitter 0.1.",
    ),
]


@pytest.mark.parametrize(("strategy", "description"), STRATEGIES)
def test_strategies_are_described_values(strategy, description):
    assert strategy.get_description() == description
    assert isinstance(strategy, RestartStrategyConfiguration)
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    assert hash(pickle.loads(pickle.dumps(strategy))) == hash(strategy)
    assert sum(strategy == other for other, _ in STRATEGIES) == 1


def test_classes_are_where_pyflink_has_them():
    fixed = RestartStrategies.FixedDelayRestartStrategyConfiguration(3, 1000)
    assert fixed == RestartStrategies.fixed_delay_restart(3, 1000)
    assert isinstance(
        RestartStrategies.no_restart(), RestartStrategies.NoRestartStrategyConfiguration
    )


def test_values_are_checked():
    with pytest.raises(ValueError, match="restart_attempts must be at least 0; got -1"):
        RestartStrategies.fixed_delay_restart(-1, 1000)
    with pytest.raises(ValueError, match="interval must not be negative; got -1 ms"):
        RestartStrategies.fixed_delay_restart(1, -1)
    with pytest.raises(ValueError, match="max_failure_rate must be at least 1; got 0"):
        RestartStrategies.failure_rate_restart(0, 1, 1)
    with pytest.raises(ValueError, match="at least initial_backoff; got 1 s and 2 s"):
        RestartStrategies.exponential_delay_restart("2 s", "1 s")
    with pytest.raises(ValueError, match="jitter_factor must be between 0 and 1; got 2"):
        RestartStrategies.exponential_delay_restart(jitter_factor=2)
    with pytest.raises(ValueError, match=r"backoff_multiplier must be at least 1; got 0.5"):
        RestartStrategies.exponential_delay_restart(backoff_multiplier=0.5)
    with pytest.raises(TypeError, match="a duration must be a timedelta"):
        RestartStrategies.fixed_delay_restart(1, None)
