"""PySpark's daemon, which starts workers by forking, with what a slot needs already imported.

A worker that takes the place of one that was killed is ready in milliseconds then, and all workers
share the memory of the imported modules. It is used in sessions that Holdfast makes itself.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark.daemon import manager

# NB: another interpreter may have been chosen for the workers, which has not all of it
with suppress(ImportError):
    import holdfast.runtime.task
    import holdfast.spark.barrier
    import holdfast.spark.worker
    import holdfast.state.rocksdb  # noqa: F401

if __name__ == "__main__":
    manager()
