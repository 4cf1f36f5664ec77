"""The warning about configuration keys that have no effect.

Known keys are those of the declared settings: Flink's names and ``holdfast.*``. Keys under
``spark.`` are passed to Spark unchanged, those under ``fs.`` and ``dfs.`` to file systems.
"""

from __future__ import annotations

import difflib
from typing import Final

import holdfast.common.execution_config

# NB: imported for the settings that they declare; `holdfast.datastream` declares the others
import holdfast.common.options.engine
import holdfast.common.options.ports
import holdfast.common.options.recovery
import holdfast.common.options.rest
import holdfast.common.options.restart  # noqa: F401
from holdfast.common.configuration import Configuration
from holdfast.common.options.setting import DECLARED_KEYS
from holdfast.printable import get_logger

__all__ = ["is_known", "warn_unknown_keys"]

_PASSED_ON: Final = ("spark.", "fs.", "dfs.", "hadoop.security.authentication")
#: the similarity of two keys above which one is suggested as a correction of the other
_ALIKE: Final = 0.8

_logger = get_logger(__name__)


def is_known(key: str) -> bool:
    """Return whether Holdfast reads the key, or passes it on."""
    return key in DECLARED_KEYS or key.startswith(_PASSED_ON)


def warn_unknown_keys(configuration: Configuration) -> None:
    """Log a warning for every key that has no effect, with the most similar known key."""
    for key in sorted(configuration.key_set()):
        if not is_known(key):
            nearest = difflib.get_close_matches(key, sorted(DECLARED_KEYS), n=1, cutoff=_ALIKE)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            _logger.warning("configuration key '%s' is not known and has no effect%s", key, hint)
