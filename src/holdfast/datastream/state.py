"""The kinds of state a function can use, and their descriptors, under PyFlink's names.

They are defined in `holdfast.state.descriptors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.state.descriptors import (
    AggregatingState,
    AggregatingStateDescriptor,
    AppendingState,
    BroadcastState,
    ColumnStateDescriptor,
    FoldingState,
    FoldingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MergingState,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from holdfast.state.ttl_config import StateTtlConfig

if TYPE_CHECKING:
    from holdfast.state.columns.keys import Keys
    from holdfast.state.columns.state import ColumnState

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ColumnState",
    "ColumnStateDescriptor",
    "FoldingState",
    "FoldingStateDescriptor",
    "Keys",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

#: loaded when they are used, because pyarrow and numpy take long to load
_LATER: Final = {
    "ColumnState": "holdfast.state.columns.state",
    "Keys": "holdfast.state.columns.keys",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
