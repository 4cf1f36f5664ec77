"""Golden files of single commits: the job, how its files are made, and where they are.

    commits/<commit>/<backend>/golden/      the job's checkpoint directory, with its last checkpoint
    commits/<commit>/<backend>/savepoint/   a savepoint that the job took on its way

Only names that the oldest of these commits has may be imported here and in the two programs: its
code runs them when the files are made.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import Configuration
from holdfast.datastream import DataStream, StreamExecutionEnvironment
from holdfast.testing import LocalExecutor
from tests.golden import program, timed

COMMITS = Path(__file__).parent / "commits"
BACKENDS = ("hashmap", "rocksdb")
#: of the operators with every kind of state: the one with keys of all types
OPERATORS = ("anything",)
SAVEPOINT = "savepoint"

#: records of a source subtask in the first epoch, and in each epoch after it: a large base, and
#: small deltas behind it
_FIRST, _NEXT = 32, 4
#: a new base is written after so many deltas, so that there are heads of every kind: RocksDB's has
#: a second base on the tables of the first one
_MOST_DELTAS = 3


def job(
    folder: Path,
    backend: str,
    *,
    making: bool = False,
    parallelism: int = program.PARALLELISM,
    start: Path | None = None,
) -> DataStream:
    """The job's output; ``folder`` holds its checkpoint directory, and its local files."""
    config = Configuration()
    config.set_string("pipeline.name", program.JOB)
    config.set_string("state.backend.type", backend)
    config.set_string("state.backend.rocksdb.localdir", str(folder / "local"))
    config.set_string("execution.checkpointing.interval", "1 h")
    config.set_string("execution.checkpointing.dir", str(folder))
    if start is not None:
        config.set_string("execution.state-recovery.path", str(start))
        config.set_string("holdfast.state-recovery.allow-pickled-state", "true")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    quota = program.QUOTA if making else None
    first, *others = program.streams(env, quota, OPERATORS) + timed.streams(env)
    return first.union(*others)


def make(target: Path, backend: str) -> None:
    """Run the job halfway, and keep a savepoint and the last checkpoint of it."""
    rocksdb = _module(
        "holdfast.state.backends.rocksdb.backend", "holdfast.state.backends.rocksdb.backend"
    )
    rocksdb._MOST_DELTAS = _MOST_DELTAS
    heap = _module("holdfast.state.backends.heap", "holdfast.state.backends.heap")
    heap.files_to_fold = _files_to_fold
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with LocalExecutor(job(folder, backend, making=True), quota=_NEXT) as run:
            run.epoch(_FIRST, checkpoint=True)
            run.epoch(checkpoint=True)
            saved = run.savepoint(folder / "savepoints")
            for _ in range(3):
                run.epoch(checkpoint=True)
        directory = folder / program.JOB
        CheckpointStore(directory).collect(keep=())
        (directory / "lock").unlink(missing_ok=True)
        shutil.copytree(directory, target / program.JOB)
        shutil.copytree(saved, target / SAVEPOINT)


def _files_to_fold(sizes: Sequence[int], new: int, live: int = 0) -> int:
    """State as small as this would always be written as a whole."""
    return len(sizes) if len(sizes) > _MOST_DELTAS else 0


def checkpoint_of(folder: Path) -> Path:
    """The one checkpoint in a folder of golden files."""
    (found,) = (folder / program.JOB).glob("chk-*")
    return found


def _module(*names: str) -> Any:
    """Return the first module that there is: old commits have others."""
    for name in names:
        with suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise ModuleNotFoundError(names)
