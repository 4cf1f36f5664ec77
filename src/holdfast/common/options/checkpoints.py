"""The setting for the interval of checkpoints."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.common.configuration import Configuration
from holdfast.common.options.setting import duration

CHECKPOINT_INTERVAL: Final = duration("execution.checkpointing.interval", None, least=None)


def is_checkpointing_enabled(configuration: Configuration) -> bool:
    """Return whether the interval of checkpoints is set and positive."""
    return (CHECKPOINT_INTERVAL.find(configuration) or timedelta()) > timedelta()
