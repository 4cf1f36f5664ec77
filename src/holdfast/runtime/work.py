"""The counts and times of a subtask since its last acknowledgement."""

from __future__ import annotations

import time
from collections import defaultdict

from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.wire.protocol import Flow


class Work:
    """Records and times of a subtask since its start, or since its last acknowledgement.

    Attributes:
        taken: what was received, by exchange.
        read: what was read from sources, by operator.
        steps: how long the steps of the protocol took.
        began: when it began, by the clock of the machine, in seconds.
    """

    def __init__(self) -> None:
        """Start with zero counts."""
        self.records_in = 0
        self.records_read = 0
        self.taken: defaultdict[int, Flow] = defaultdict(Flow)
        self.read: defaultdict[int, Flow] = defaultdict(Flow)
        self.steps = Stopwatch()
        self.began = time.time()
