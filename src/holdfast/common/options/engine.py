"""The settings for the engine of a job."""

from __future__ import annotations

import os
from datetime import timedelta
from enum import Enum
from typing import Final

from holdfast.common.config_options import ConfigOption, to_long
from holdfast.common.configuration import Configuration
from holdfast.common.options.setting import Setting, choice, count, duration, text


class EngineSetting(Enum):
    """The engines that run a job: on Spark, or in the program's own process."""

    #: resident, unless the job or the session does not support it
    AUTO = "auto"
    #: subtasks that keep running, in one long Spark job per attempt
    RESIDENT = "resident"
    #: a Spark job per epoch
    EPOCHS = "epochs"
    #: without Spark, in the process of the program; never chosen automatically
    LOCAL = "local"


ENGINE: Final = choice("holdfast.engine", EngineSetting, EngineSetting.AUTO)
#: the environment variable that is used if the configuration does not set the engine
ENGINE_VARIABLE: Final = "HOLDFAST_ENGINE"
#: the time without messages after which a slot, or the driver, is considered lost
HEARTBEAT: Final = duration(
    "holdfast.heartbeat.timeout", timedelta(seconds=10), least=timedelta(milliseconds=500)
)
#: how long an attempt of a resident job waits for task slots
SLOTS_WAIT: Final = duration("holdfast.slots.wait", timedelta(seconds=60))
#: with fewer task slots than that a resident job does not go on
SLOTS_MIN: Final = count("holdfast.slots.min", 1, least=1)
#: how long more task slots must be there before a resident job uses them
SLOTS_STABLE: Final = duration("holdfast.slots.stable", timedelta(seconds=10))
#: the most records that a source subtask reads in an epoch
LARGEST_EPOCH: Final = Setting(
    ConfigOption("holdfast.epoch.max-records", "integer", to_long, 4_000_000)
)
#: the parent of the directories of running jobs
DIRECTORY: Final = text("holdfast.directory")
#: the directory of a fault injection plan, for tests
FAULTS: Final = text("holdfast.testing.faults", "")


def engine_setting(configuration: Configuration) -> EngineSetting:
    """Return the engine that the configuration sets, or else the environment variable."""
    wanted = os.environ.get(ENGINE_VARIABLE)
    if wanted and ENGINE.find(configuration) is None:
        return ENGINE.get(Configuration().set_string(str(ENGINE), wanted))
    return ENGINE.get(configuration)
