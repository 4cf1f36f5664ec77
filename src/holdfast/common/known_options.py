"""Every configuration key that Holdfast knows, and the warning about those it does not.

Flink's names for what Holdfast has, their older names, and ``holdfast.*``. Keys under ``spark.``
are handed to Spark as they are, those under ``fs.`` to file systems. A key of Flink that is not
here has no effect.
"""

from __future__ import annotations

import difflib
from typing import Final

from holdfast.common.configuration import Configuration
from holdfast.printable import get_logger

__all__ = ["KNOWN_KEYS", "is_known", "warn_unknown_keys"]

KNOWN_KEYS: Final = frozenset(
    {
        "execution.buffer-timeout.interval",
        "execution.checkpointing.aligned-checkpoint-timeout",
        "execution.checkpointing.alignment-timeout",
        "execution.checkpointing.data-inline-threshold",
        "execution.checkpointing.dir",
        "execution.checkpointing.externalized-checkpoint-retention",
        "execution.checkpointing.incremental",
        "execution.checkpointing.interval",
        "execution.checkpointing.max-concurrent-checkpoints",
        "execution.checkpointing.min-pause",
        "execution.checkpointing.mode",
        "execution.checkpointing.num-retained",
        "execution.checkpointing.savepoint-dir",
        "execution.checkpointing.snapshot-compression",
        "execution.checkpointing.storage",
        "execution.checkpointing.timeout",
        "execution.checkpointing.tolerable-failed-checkpoints",
        "execution.checkpointing.unaligned",
        "execution.checkpointing.unaligned.enabled",
        "execution.checkpointing.unaligned.forced",
        "execution.checkpointing.write-buffer-size",
        "execution.runtime-mode",
        "execution.savepoint.ignore-unclaimed-state",
        "execution.savepoint.path",
        "execution.state-recovery.claim-mode",
        "execution.state-recovery.from-local",
        "execution.state-recovery.ignore-unclaimed-state",
        "execution.state-recovery.path",
        "holdfast.directory",
        "holdfast.engine",
        "holdfast.epoch.max-records",
        "holdfast.heartbeat.timeout",
        "holdfast.port.range",
        "holdfast.slots.min",
        "holdfast.slots.stable",
        "holdfast.slots.wait",
        "holdfast.start-afresh",
        "holdfast.state-recovery.allow-pickled-state",
        "holdfast.state.check-mutations",
        "holdfast.testing.faults",
        "metrics.latency.interval",
        "parallelism.default",
        "pipeline.auto-generate-uids",
        "pipeline.auto-watermark-interval",
        "pipeline.global-job-parameters",
        "pipeline.max-parallelism",
        "pipeline.name",
        "pipeline.object-reuse",
        "pipeline.operator-chaining.enabled",
        "rest.address",
        "rest.allowed-hosts",
        "rest.bind-address",
        "rest.bind-port",
        "rest.enabled",
        "rest.max-body-bytes",
        "rest.port",
        "rest.read-token",
        "rest.requests-per-second",
        "rest.token",
        "restart-strategy",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        "restart-strategy.exponential-delay.backoff-multiplier",
        "restart-strategy.exponential-delay.initial-backoff",
        "restart-strategy.exponential-delay.jitter-factor",
        "restart-strategy.exponential-delay.max-backoff",
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        "restart-strategy.failure-rate.delay",
        "restart-strategy.failure-rate.failure-rate-interval",
        "restart-strategy.failure-rate.max-failures-per-interval",
        "restart-strategy.fixed-delay.attempts",
        "restart-strategy.fixed-delay.delay",
        "restart-strategy.type",
        "savepoints.state.backend.fs.dir",
        "state.backend",
        "state.backend.changelog.enabled",
        "state.backend.fs.checkpointdir",
        "state.backend.fs.memory-threshold",
        "state.backend.fs.write-buffer-size",
        "state.backend.incremental",
        "state.backend.local-recovery",
        "state.backend.rocksdb.checkpoint.transfer.thread.num",
        "state.backend.rocksdb.localdir",
        "state.backend.rocksdb.memory.fixed-per-slot",
        "state.backend.type",
        "state.changelog.enabled",
        "state.checkpoint-storage",
        "state.checkpoints.dir",
        "state.checkpoints.num-retained",
        "state.savepoints.dir",
        "state.storage.fs.memory-threshold",
        "state.storage.fs.write-buffer-size",
        "task.cancellation.interval",
        "task.cancellation.timeout",
    }
)

_PASSED_ON: Final = ("spark.", "fs.")
#: how alike two keys must be for one to be taken for a slip of the other
_ALIKE: Final = 0.8

_logger = get_logger(__name__)


def is_known(key: str) -> bool:
    """Return whether Holdfast reads the key, or hands it on."""
    return key in KNOWN_KEYS or key.startswith(_PASSED_ON)


def warn_unknown_keys(configuration: Configuration) -> None:
    """Log a warning for every key that has no effect, with the known one that is most like it."""
    for key in sorted(configuration.key_set()):
        if not is_known(key):
            nearest = difflib.get_close_matches(key, KNOWN_KEYS, n=1, cutoff=_ALIKE)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            _logger.warning("configuration key '%s' is not known and has no effect%s", key, hint)
