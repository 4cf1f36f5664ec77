"""Planning of how far sources read in an epoch, for those that fix it before the epoch runs."""

from __future__ import annotations

import pickle

from holdfast.datastream.connectors.base import EpochPlanner, Source
from holdfast.graph.operations import SourceOperation
from holdfast.plan.model import Plan
from holdfast.runtime.wire.protocol import Origin


class Planners:
    """The planners of a job's sources, created for each attempt."""

    def __init__(self, plan: Plan, run_free: bool = False) -> None:
        """Find the sources; no planner is created yet.

        ``run_free``: readers read beyond their plans, since no epoch is run again.
        """
        self._run_free = run_free
        self._sources: dict[str, Source] = {
            op.uid: op.node.operation.source
            for op in plan.operators.values()
            if isinstance(op.node.operation, SourceOperation)
        }
        self._planners: dict[str, EpochPlanner] = {}

    def begin_attempt(self, origin: Origin | None) -> None:
        """Create the planners for a start from a checkpoint; None: from the beginning."""
        self.close()
        for uid, source in self._sources.items():
            planner = source.create_planner(origin is not None and uid in origin.operators)
            if planner is not None:
                self._planners[uid] = planner
                if self._run_free:
                    planner.run_free()

    def plans(self) -> dict[str, bytes]:
        """Return the plans for the readers of the next epoch, by operator uid."""
        return {uid: pickle.dumps(each.plan(), 5) for uid, each in self._planners.items()}

    def close(self) -> None:
        """Close the planners and their connections."""
        while self._planners:
            self._planners.popitem()[1].close()
