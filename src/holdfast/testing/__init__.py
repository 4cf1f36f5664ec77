"""Tools to test jobs with: run a plan in this process, script its input, look at its state.

Running: ``LocalExecutor`` runs a job epoch by epoch without Spark, ``collect`` and ``run_locally``
run it to its end. Input: ``ScriptedSource`` with ``EndOfEpoch``, ``AdvanceClock`` and ``Crash``.
Output: ``CollectingSink``. Time: ``ManualClock``. One function by itself: ``Harness`` and
``KeyedHarness``. Failures: ``FaultPlan``. ``MemoryStateStorage`` keeps state files in memory,
``MemoryFileSystem`` whole checkpoint directories, and knows what a crash leaves of them.
"""

from holdfast.testing.clock import ManualClock
from holdfast.testing.executor import LocalExecutor, collect, run_locally
from holdfast.testing.faults import Fault, FaultPlan, InjectedFault, SimulatedKill
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
