"""The offsets that a consumer commits to its group: one request at a time, the newest last.

The client sends requests that wait for the group's coordinator in any order. So an older offset
could overwrite a newer one if there were two requests at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.datastream.connectors.kafka.offsets import Split
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

_logger = get_logger(__name__)
#: before offsets that the group did not take are committed again, in seconds: doubled each time
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 60.0


class GroupCommits:
    """Offsets to commit, and the request that is under way.

    Offsets may be asked for in one thread while another one reads and gets the answers.
    """

    def __init__(self, send: Callable[[Mapping[Split, int]], None]) -> None:
        """Send requests with this function, which must not wait for the answer."""
        self._send = send
        self._lock = threading.RLock()
        self._wanted: dict[Split, int] = {}
        self._sent: dict[Split, int] = {}
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0

    def ask(self, offsets: Mapping[Split, int]) -> None:
        """Commit these offsets, now or after the request that is under way."""
        with self._lock:
            self._wanted |= offsets
            self.go_on()

    def go_on(self) -> None:
        """Send the next request, if it is time; called with every read, too."""
        with self._lock:
            if self._sent or not self._wanted or time.monotonic() < self._not_before:
                return
            self._sent, self._wanted = self._wanted, {}
            try:
                self._send(self._sent)
            except Exception as error:
                self._failed(self._sent, error)

    @property
    def unfinished(self) -> bool:
        """Return whether offsets are not committed yet; an answer arrives during a read."""
        return bool(self._sent or self._wanted)

    def answered(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """Take an answer; the client calls this in the thread that reads."""
        with self._lock:
            refused = {
                (place.topic, place.partition): place.error
                for place in places
                if place.error is not None
            }
            # NB: an error of the whole request need not name its partitions
            failed = {s: at for s, at in self._sent.items() if error is not None or s in refused}
            self._sent = {}
            if failed:
                self._failed(failed, error or next(iter(refused.values())))
            else:
                self._pause = _FIRST_PAUSE

    def _failed(self, offsets: dict[Split, int], reason: object) -> None:
        """Commit offsets again after a pause, unless newer ones are waiting."""
        if self._pause == _FIRST_PAUSE:
            message = "offsets %s could not be committed to Kafka: %s; they are committed again"
            _logger.warning(message, offsets, reason)
        self._sent = {}
        self._wanted = {**offsets, **self._wanted}
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
