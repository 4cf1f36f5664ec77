"""How far the sources of a job go in an epoch, where that has to be fixed before it runs."""

from __future__ import annotations

import pickle

from holdfast.datastream.connectors.base import EpochPlanner, Source
from holdfast.graph.nodes import SourceOperation
from holdfast.plan.model import Plan
from holdfast.runtime.protocol import Origin


class Planners:
    """The planners of a job's sources, made anew for each attempt."""

    def __init__(self, plan: Plan, run_free: bool = False) -> None:
        """Find the sources; nothing is asked yet.

        ``run_free``: the readers run free, since no epoch is run again.
        """
        self._run_free = run_free
        self._sources: dict[str, Source] = {
            op.uid: op.node.operation.source
            for op in plan.operators.values()
            if isinstance(op.node.operation, SourceOperation)
        }
        self._planners: dict[str, EpochPlanner] = {}

    def begin_attempt(self, origin: Origin | None) -> None:
        """Plan from a checkpoint on; None: from the beginning."""
        self.close()
        for uid, source in self._sources.items():
            planner = source.create_planner(origin is not None and uid in origin.operators)
            if planner is not None:
                self._planners[uid] = planner
                if self._run_free:
                    planner.run_free()

    def plans(self) -> dict[str, bytes]:
        """What the readers of the next epoch are told, by operator uid."""
        return {uid: pickle.dumps(each.plan(), 5) for uid, each in self._planners.items()}

    def close(self) -> None:
        """Let go of connections."""
        while self._planners:
            self._planners.popitem()[1].close()
