"""Watermark groups: how far the sources of a group may read ahead of the slowest one.

Pure: watermarks in, ceilings out. The driver computes the ceilings of an epoch from the watermarks
at the end of the previous epoch. The subtasks of a source read until their watermark exceeds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from holdfast.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from holdfast.common.time import to_millis
from holdfast.common.watermark_strategy import WatermarkAlignment
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import Plan

#: a subtask of a source: its operator's uid and its number
Place = tuple[str, int]


class WatermarkGroups:
    """The sources of a job that are aligned, by watermark group."""

    def __init__(self, plan: Plan) -> None:
        """Find the aligned sources of a plan."""
        self._groups: defaultdict[str, dict[str, WatermarkAlignment]] = defaultdict(dict)
        for operator in plan.sources:
            assert isinstance(operator.node.operation, SourceOperation)
            alignment = getattr(operator.node.operation.strategy, "alignment", None)
            if alignment is not None:
                self._groups[alignment.group][operator.uid] = alignment

    def ceilings(self, watermarks: Mapping[Place, int], idle: Collection[Place]) -> dict[str, int]:
        """Return the watermark up to which each aligned source may read, by operator uid.

        A source that has ended has the largest watermark, and an idle one counts as if it had, so
        neither holds back others. Subtasks without a watermark do not count, as in Flink. While no
        subtask of a group has a watermark, each of them reads until it has one.
        """
        return {
            uid: min(lowest + to_millis(alignment.max_drift), MAX_LONG_VALUE)
            if (lowest := _lowest(members, watermarks, idle)) is not None
            else MIN_LONG_VALUE
            for members in self._groups.values()
            for uid, alignment in members.items()
        }


def _lowest(
    members: Collection[str], watermarks: Mapping[Place, int], idle: Collection[Place]
) -> int | None:
    known = [
        time for place, time in watermarks.items() if place[0] in members and place not in idle
    ]
    known += [MAX_LONG_VALUE for uid, _ in idle if uid in members]
    return min(known, default=None)
