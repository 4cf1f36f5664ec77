"""Which engine a job is to run on, as a configuration says it."""

from __future__ import annotations

import os
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
    "EngineSetting",
    "engine_setting",
    "heartbeat_timeout",
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
_SETTING: Final = choice(ENGINE, EngineSetting, EngineSetting.AUTO)
_HEARTBEAT: Final = Setting(
    ConfigOptions.key(HEARTBEAT).duration_type().default_value(timedelta(seconds=10)),
    least=timedelta(milliseconds=500),
)


def engine_setting(configuration: Configuration) -> EngineSetting:
    """Return what was asked for: by the configuration, or else by the environment."""
    wanted = os.environ.get(ENGINE_VARIABLE)
    if wanted and _SETTING.find(configuration) is None:
        return _SETTING.get(Configuration().set_string(ENGINE, wanted))
    return _SETTING.get(configuration)


def heartbeat_timeout(configuration: Configuration) -> float:
    """Return after how many seconds of silence a slot, or the driver, counts as lost."""
    return _HEARTBEAT.get(configuration).total_seconds()
