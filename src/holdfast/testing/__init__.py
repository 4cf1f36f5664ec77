"""Tools for testing jobs: run a plan in this process, script its input, read its state.

Running: ``LocalExecutor`` runs a job epoch by epoch without Spark, ``collect`` and ``run_locally``
run it to its end. Input: ``ScriptedSource`` with ``EndOfEpoch``, ``AdvanceClock`` and ``Crash``.
Output: ``CollectingSink``. Time: ``ManualClock``. One function by itself: ``Harness`` and
``KeyedHarness``. Failures: ``FaultPlan``. ``MemoryStateStorage`` keeps state files in memory,
``MemoryFileSystem`` whole checkpoint directories, and simulates crashes.
"""

from holdfast.runtime.worker.injected_faults import Fault, InjectedFault, SimulatedKill
from holdfast.testing.clock import ManualClock
from holdfast.testing.executor import LocalExecutor, collect, run_locally
from holdfast.testing.faults import FaultPlan
from holdfast.testing.filesystem import MemoryFileSystem
from holdfast.testing.harness import Harness, KeyedHarness, Snapshot
from holdfast.testing.script import (
    AdvanceClock,
    Crash,
    EndOfEpoch,
    Event,
    ScriptedSource,
    SimulatedCrash,
)
from holdfast.testing.sink import CollectingSink
from holdfast.testing.storage import MemoryStateStorage

__all__ = [
    "AdvanceClock",
    "CollectingSink",
    "Crash",
    "EndOfEpoch",
    "Event",
    "Fault",
    "FaultPlan",
    "Harness",
    "InjectedFault",
    "KeyedHarness",
    "LocalExecutor",
    "ManualClock",
    "MemoryFileSystem",
    "MemoryStateStorage",
    "ScriptedSource",
    "SimulatedCrash",
    "SimulatedKill",
    "Snapshot",
    "collect",
    "run_locally",
]
