"""What is in the state files of a job: every state of an operator, without asking the job."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

from holdfast.common import Types
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.state.backend import HeapKeyedStateBackend, KeyContext
from holdfast.state.format.files import Section
from holdfast.state.format.stored_files import read_file
from holdfast.state.types.schema import describe
from holdfast.state.types.schema_of import schema_of
from holdfast.testing import LocalExecutor

_TYPES = {describe(schema_of(t)): t for t in (Types.LONG(), Types.INT(), Types.STRING())}


def saved(run: LocalExecutor, uid: str) -> dict[str, dict[Any, Any]]:
    """The entries of each state of an operator after the last epoch, by (key, namespace)."""
    op = run._operator(uid)
    states: dict[str, dict[Any, Any]] = {}
    for head in run._book.heads[op.level]:
        backend = HeapKeyedStateBackend(range(op.max_parallelism), op.max_parallelism)
        backend.restore(run.storage, head)
        for file in head.files:
            for section in read_file(run.storage, file.name, file.size).sections:
                if section.operator == uid:
                    descriptor = _descriptor(section)
                    backend.keyed_state(uid, descriptor, KeyContext(), section.namespaced)
                    states.setdefault(section.state, {}).update(
                        ((key, space), value)
                        for key, space, value in backend.entries(uid, section.state)
                    )
    return states


def sizes(run: LocalExecutor, uid: str) -> Counter[str]:
    """How many entries each state has; those without any do not count."""
    return Counter({name: len(entries) for name, entries in saved(run, uid).items() if entries})


def _descriptor(section: Section) -> StateDescriptor:
    if section.kind == "map":
        return MapStateDescriptor(section.state)
    declared = section.types[0]
    type_info = None if declared is None else _TYPES[describe(declared)]
    if section.kind == "list":
        return ListStateDescriptor(section.state, type_info)
    if section.kind == "reducing":
        return ReducingStateDescriptor(section.state, operator.add, type_info)
    return ValueStateDescriptor(section.state, type_info)
