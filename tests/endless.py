"""A source for tests that have to stop a job, or watch one that goes on."""

from __future__ import annotations

from holdfast.datastream import SourceFunction
from holdfast.datastream.functions import SourceContext


class Endless(SourceFunction):
    """Emits numbers without end, as fast as it is read."""

    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: SourceContext) -> None:
        number = 0
        while self.running:
            ctx.collect(number)
            number += 1

    def cancel(self) -> None:
        self.running = False
