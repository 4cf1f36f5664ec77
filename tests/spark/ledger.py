"""A system outside of the job, with transactions: it keeps results and knows if they are right.

It answers one request per connection, a line of JSON each: ``prepare`` a transaction with its
records, ``commit`` or ``abort`` it, ``ask`` whether the sources shall end. Nothing of Holdfast is
used here: what must be there follows from the numbers alone.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter, defaultdict, deque
from contextlib import suppress
from typing import Any

__all__ = ["Ledger"]


class Ledger:
    """Transactions, and what was committed in them.

    Attributes:
        problems: what can never have been right, as soon as it is known.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Answer whoever connects."""
        self.problems: list[str] = []
        self._listener = listener
        self._lock = threading.Lock()
        self._prepared: dict[str, list[dict[str, Any]]] = {}
        self._committed: set[str] = set()
        self._aborted: set[str] = set()
        self._end = False
        #: where the sources ended
        self._ends: dict[int, int] = {}
        #: the last commits: when, of which source, and when its newest number was given
        self._commits: deque[tuple[float, int, float]] = deque(maxlen=5000)
        self._numbers: dict[int, Counter[int]] = defaultdict(Counter)
        #: by key: count, total, number
        self._steps: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        threading.Thread(target=self._accept, name="ledger", daemon=True).start()

    def results_since(self, moment: float, sources: int) -> float | None:
        """Return when each source had a number committed that it gave after a moment."""
        with self._lock:
            first: dict[int, float] = {}
            for committed, source, given in self._commits:
                if given > moment:
                    first.setdefault(source, committed)
        return max(first.values()) if len(first) == sources else None

    @property
    def total(self) -> int:
        """How many numbers are committed."""
        with self._lock:
            return sum(counts.total() for counts in self._numbers.values())

    def end(self) -> None:
        """Let the sources end."""
        self._end = True

    def verify(self, sources: int) -> list[str]:
        """Return what is wrong, after the job's own end; empty if every count is exact."""
        with self._lock:
            found = list(self.problems)
            if set(self._ends) != set(range(sources)):
                found.append(f"the ends of sources {sorted(self._ends)} came, not of {sources}")
            for source, end in self._ends.items():
                found += _compare(source, self._numbers[source], end)
            for key, steps in self._steps.items():
                found += _add_up(key, steps)
            return found

    def close(self) -> None:
        """Answer nobody any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    # Requests

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        line.settimeout(30.0)
        # a host that is cut off in the middle of a request
        with line, line.makefile("rw") as file, suppress(OSError, ValueError):
            request = json.loads(file.readline())
            file.write(json.dumps(self._answer(request)) + "\n")
            file.flush()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request.get("name", "")
        with self._lock:
            match request["do"]:
                case "ask":
                    return {"end": self._end}
                case "prepare":
                    self._prepared[name] = request["records"]
                case "commit":
                    return self._commit(name)
                case "abort" if name not in self._committed:
                    self._prepared.pop(name, None)
                    self._aborted.add(name)
            return {}

    def _commit(self, name: str) -> dict[str, Any]:
        if name in self._committed:
            return {}
        if name not in self._prepared:
            why = "was aborted before" if name in self._aborted else "was never prepared"
            problem = f"transaction {name} is to be committed, and {why}"
            self.problems.append(problem)
            return {"error": problem}
        self._committed.add(name)
        newest: dict[int, float] = {}
        for record in self._prepared.pop(name):
            self._take(record)
            newest[record["source"]] = record.get("given", 0.0)
        now = time.time()
        self._commits.extend((now, source, given) for source, given in newest.items())
        return {}

    def _take(self, record: dict[str, Any]) -> None:
        source = record["source"]
        if "end" in record:
            self._ends[source] = record["end"]
            return
        number = record["number"]
        self._numbers[source][number] += 1
        if self._numbers[source][number] > 1:
            self.problems.append(f"number {number} of source {source} was committed again")
        self._steps[record["key"]].append((record["count"], record["total"], number))


def _compare(source: int, found: Counter[int], end: int) -> list[str]:
    missing = [number for number in range(end) if number not in found]
    problems = [f"source {source}: numbers {missing[:5]}... are missing"] if missing else []
    if found.total() - len(found) or any(number >= end for number in found):
        problems.append(f"source {source}: {found.total()} numbers came, not {end}")
    return problems


def _add_up(key: int, steps: list[tuple[int, int, int]]) -> list[str]:
    running = 0
    for place, (count, total, number) in enumerate(sorted(steps), 1):
        running += number
        if (count, total) != (place, running):
            wanted = f"{place} and {running}"
            return [f"key {key}, number {number}: count {count}, sum {total}; not {wanted}"]
    return []
