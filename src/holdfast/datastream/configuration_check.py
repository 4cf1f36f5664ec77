"""Checks a configuration as a whole, before anything is started with it."""

from __future__ import annotations

from holdfast.common.configuration import Configuration
from holdfast.common.options.engine import engine_setting
from holdfast.common.options.rest import rest_options
from holdfast.common.options.restart import restart_strategy
from holdfast.common.options.setting import check_values
from holdfast.common.unknown_keys import warn_unknown_keys
from holdfast.datastream.checkpoint_storage import storage_of
from holdfast.datastream.state_backend import state_settings

__all__ = ["check_configuration"]


def check_configuration(configuration: Configuration) -> None:
    """Read all settings; log a warning for every key that has no effect.

    Raises:
        JobDefinitionError: if a value cannot be used, or does not fit another one.
    """
    warn_unknown_keys(configuration)
    check_values(configuration)
    restart_strategy(configuration)
    state_settings(configuration)
    storage_of(configuration)
    engine_setting(configuration)
    rest_options(configuration)
