"""Savepoints as data: read, compare, change and create savepoints and checkpoints without a job.

Flink calls this the State Processor API. PyFlink does not have it, so the names are Holdfast's own.
"""

from holdfast.savepoint.comparing import StateChanges, compare
from holdfast.savepoint.data import StateData
from holdfast.savepoint.info import OperatorInfo, StateInfo, StateSize
from holdfast.savepoint.savepoint import Savepoint
from holdfast.savepoint.sources import KeyedState, OperatorState, Timers
from holdfast.savepoint.writer import SavepointWriter
from holdfast.state.errors import StateLookupError

__all__ = [
    "KeyedState",
    "OperatorInfo",
    "OperatorState",
    "Savepoint",
    "SavepointWriter",
    "StateChanges",
    "StateData",
    "StateInfo",
    "StateLookupError",
    "StateSize",
    "Timers",
    "compare",
]
