import pytest

from holdfast.common import Configuration, RestartStrategies
from holdfast.common.options.restart import (
    configured_restart_strategy,
    put_restart_strategy,
    restart_strategy,
)

CHECKPOINTS = {"execution.checkpointing.interval": "1 s"}

STRATEGIES = [
    (RestartStrategies.no_restart(), {"restart-strategy.type": "none"}),
    (
        RestartStrategies.fixed_delay_restart(3, "10 s"),
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "10 s",
        },
    ),
    (
        RestartStrategies.failure_rate_restart(3, "5 min", "10 s"),
        {
            "restart-strategy.type": "failure-rate",
            "restart-strategy.failure-rate.max-failures-per-interval": "3",
            "restart-strategy.failure-rate.failure-rate-interval": "5 min",
            "restart-strategy.failure-rate.delay": "10 s",
        },
    ),
    (
        RestartStrategies.exponential_delay_restart("2 s", "3 min", 2.0, "4 h", 0.2),
        {
            "restart-strategy.type": "exponential-delay",
            "restart-strategy.exponential-delay.initial-backoff": "2 s",
            "restart-strategy.exponential-delay.max-backoff": "3 min",
            "restart-strategy.exponential-delay.backoff-multiplier": "2.0",
            "restart-strategy.exponential-delay.reset-backoff-threshold": "4 h",
            "restart-strategy.exponential-delay.jitter-factor": "0.2",
        },
    ),
]


@pytest.mark.parametrize(("strategy", "entries"), STRATEGIES)
def test_a_strategy_and_its_keys(strategy, entries):
    configuration = Configuration()
    put_restart_strategy(configuration, strategy)
    assert configuration.to_dict() == entries
    assert configured_restart_strategy(configuration) == strategy
    assert restart_strategy(Configuration(entries)) == strategy


@pytest.mark.parametrize(
    ("names", "strategy"),
    [
        (("none", "off", "disable", "NONE"), RestartStrategies.no_restart()),
        (("fixed-delay", "fixeddelay"), RestartStrategies.fixed_delay_restart(1, "1 s")),
        (
            ("failure-rate", "failurerate"),
            RestartStrategies.failure_rate_restart(1, "1 min", "1 s"),
        ),
        (
            ("exponential-delay", "exponentialdelay"),
            RestartStrategies.exponential_delay_restart(),
        ),
    ],
)
def test_names_and_defaults_are_those_of_flink(names, strategy):
    for name in names:
        assert restart_strategy(Configuration({"restart-strategy.type": name})) == strategy
        assert restart_strategy(Configuration({"restart-strategy": name})) == strategy


def test_a_job_without_checkpoints_is_not_restarted_by_default():
    assert restart_strategy(Configuration()) == RestartStrategies.no_restart()


def test_a_job_with_checkpoints_is_restarted_with_exponential_delay_by_default():
    expected = RestartStrategies.exponential_delay_restart()
    assert restart_strategy(Configuration(CHECKPOINTS)) == expected


def test_fall_back_takes_the_choice_out():
    configuration = Configuration({**CHECKPOINTS, "restart-strategy": "none"})
    assert configured_restart_strategy(configuration) == RestartStrategies.no_restart()
    put_restart_strategy(configuration, RestartStrategies.fall_back_restart())
    assert configured_restart_strategy(configuration) == RestartStrategies.fall_back_restart()
    assert configuration.to_dict() == CHECKPOINTS


def test_an_unknown_strategy():
    configuration = Configuration({"restart-strategy.type": "sometimes"})
    with pytest.raises(ValueError, match="no strategy 'sometimes'; use one of none, fixed-delay"):
        restart_strategy(configuration)


def test_a_strategy_must_be_one():
    with pytest.raises(TypeError, match="must be created by RestartStrategies; got str"):
        put_restart_strategy(Configuration(), "none")


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("fixed-delay", "fixed-delay.attempts", "-1", "fixed-delay.attempts must be at least 0"),
        ("failure-rate", "failure-rate.max-failures-per-interval", "0", "must be at least 1"),
        ("exponential-delay", "exponential-delay.jitter-factor", "2", "jitter_factor must be"),
        ("fixed-delay", "fixed-delay.delay", "soon", "cannot read 'soon' as duration"),
    ],
)
def test_parameters_are_checked(name, key, value, message):
    entries = {"restart-strategy.type": name, f"restart-strategy.{key}": value}
    with pytest.raises(ValueError, match=message):
        restart_strategy(Configuration(entries))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({}, RestartStrategies.fall_back_restart()),
        ({"restart-strategy.type": "none"}, RestartStrategies.no_restart()),
        ({"restart-strategy.type": "Disable"}, RestartStrategies.no_restart()),
        ({"restart-strategy": "off"}, RestartStrategies.no_restart()),
        (
            {"restart-strategy": "off", "restart-strategy.type": "fixed-delay"},
            RestartStrategies.fixed_delay_restart(1, 1000),
        ),
        (
            {
                "restart-strategy.type": "fixeddelay",
                "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "10 s",
            },
            RestartStrategies.fixed_delay_restart(3, 10_000),
        ),
        (
            {"restart-strategy": "failurerate"},
            RestartStrategies.failure_rate_restart(1, 60_000, 1000),
        ),
        (
            {
                "restart-strategy.type": "failure-rate",
                "restart-strategy.failure-rate.max-failures-per-interval": 3,
                "restart-strategy.failure-rate.failure-rate-interval": "5 min",
                "restart-strategy.failure-rate.delay": "10 s",
            },
            RestartStrategies.failure_rate_restart(3, "5 min", "10 s"),
        ),
        (
            {
                "restart-strategy.type": "exponentialdelay",
                "restart-strategy.exponential-delay.max-backoff": "2 min",
            },
            RestartStrategies.exponential_delay_restart("1 s", "2 min", 1.5, "1 h", 0.1),
        ),
    ],
)
def test_from_configuration(entries, expected):
    assert configured_restart_strategy(Configuration.from_dict(entries)) == expected


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"restart-strategy": "fixed_delay"}, r"no strategy 'fixed_delay'; use one of none"),
        ({"restart-strategy.type": "?"}, r"there is no strategy '\?'; use one of"),
        (
            {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "x"},
            r"restart-strategy.fixed-delay.attempts.*cannot read 'x' as int",
        ),
        (
            {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": -1},
            r"restart-strategy.fixed-delay.attempts must be at least 0; got -1",
        ),
        (
            {
                "restart-strategy.type": "exponential-delay",
                "restart-strategy.exponential-delay.attempts-before-reset-backoff": 0,
            },
            "attempts-before-reset-backoff must be at least 1; got 0",
        ),
    ],
)
def test_wrong_configuration(entries, message):
    with pytest.raises(ValueError, match=message):
        configured_restart_strategy(Configuration.from_dict(entries))


def test_a_limit_of_attempts_and_its_key():
    limited = RestartStrategies.exponential_delay_restart(attempts_before_reset_backoff=7)
    configuration = Configuration()
    put_restart_strategy(configuration, limited)
    assert configured_restart_strategy(configuration) == limited
    put_restart_strategy(configuration, RestartStrategies.exponential_delay_restart())
    assert configured_restart_strategy(configuration) != limited
