"""Which engine a job is to run on, as a configuration says it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from holdfast.common._settings import Setting, choice
from holdfast.common.config_options import ConfigOptions
from holdfast.common.configuration import Configuration

__all__ = [
    "ENGINE",
    "ENGINE_VARIABLE",
    "HEARTBEAT",
    "SLOTS_MIN",
    "SLOTS_STABLE",
    "SLOTS_WAIT",
    "EngineSetting",
    "SlotSettings",
    "engine_setting",
    "heartbeat_timeout",
    "slot_settings",
]


class EngineSetting(Enum):
    """What runs a job on Spark."""

    #: resident, unless the job or the session is not made for it
    AUTO = "auto"
    #: subtasks that stay, in one long Spark job per attempt
    RESIDENT = "resident"
    #: a Spark job per epoch
    EPOCHS = "epochs"


ENGINE: Final = "holdfast.engine"
#: the environment variable that counts where a configuration says nothing
ENGINE_VARIABLE: Final = "HOLDFAST_ENGINE"
HEARTBEAT: Final = "holdfast.heartbeat.timeout"
SLOTS_WAIT: Final = "holdfast.slots.wait"
SLOTS_MIN: Final = "holdfast.slots.min"
SLOTS_STABLE: Final = "holdfast.slots.stable"
_SETTING: Final = choice(ENGINE, EngineSetting, EngineSetting.AUTO)
_HEARTBEAT: Final = Setting(
    ConfigOptions.key(HEARTBEAT).duration_type().default_value(timedelta(seconds=10)),
    least=timedelta(milliseconds=500),
)
_WAIT: Final = Setting(
    ConfigOptions.key(SLOTS_WAIT).duration_type().default_value(timedelta(seconds=60)),
    least=timedelta(0),
)
_MIN: Final = Setting(ConfigOptions.key(SLOTS_MIN).int_type().default_value(1), least=1)
_STABLE: Final = Setting(
    ConfigOptions.key(SLOTS_STABLE).duration_type().default_value(timedelta(seconds=10)),
    least=timedelta(0),
)


@dataclass(frozen=True)
class SlotSettings:
    """What a resident job does when it finds fewer task slots than it needs.

    Attributes:
        wait: how long an attempt waits for task slots, in seconds.
        least: with fewer slots than that the job does not go on.
        stable: how long more slots must be there before the job uses them, in seconds.
    """

    wait: float = 60.0
    least: int = 1
    stable: float = 10.0


def engine_setting(configuration: Configuration) -> EngineSetting:
    """Return what was asked for: by the configuration, or else by the environment."""
    wanted = os.environ.get(ENGINE_VARIABLE)
    if wanted and _SETTING.find(configuration) is None:
        return _SETTING.get(Configuration().set_string(ENGINE, wanted))
    return _SETTING.get(configuration)


def heartbeat_timeout(configuration: Configuration) -> float:
    """Return after how many seconds of silence a slot, or the driver, counts as lost."""
    return _HEARTBEAT.get(configuration).total_seconds()


def slot_settings(configuration: Configuration) -> SlotSettings:
    """Return what was set."""
    return SlotSettings(
        _WAIT.get(configuration).total_seconds(),
        _MIN.get(configuration),
        _STABLE.get(configuration).total_seconds(),
    )
