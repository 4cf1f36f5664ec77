"""PySpark's daemon, which forks workers, with the modules of a slot already imported.

The replacement of a killed worker is then ready in milliseconds, and all workers share the memory
of the imported modules. It is used in sessions that Holdfast creates itself.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark.daemon import manager

# NB: another interpreter may have been chosen for the workers, which lacks some of these modules
with suppress(ImportError):
    import holdfast.runtime.epochs.task
    import holdfast.spark.resident.barrier
    import holdfast.spark.worker
    import holdfast.state.backends.rocksdb.backend  # noqa: F401

if __name__ == "__main__":
    manager()
