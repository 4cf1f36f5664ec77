"""Assigns a number to each slot of an attempt. Pure.

Slot *k* has subtask *k* of every level. Spark may run task *k* on another host in the next attempt,
so the driver assigns the numbers: a slot gets one that its host had before, because that host has
copies of the state files of those subtasks (see `holdfast.state.local_copies`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence


def assign_numbers(hosts: Mapping[int, str], before: Sequence[str]) -> dict[int, int]:
    """Return the number of each slot, by the number of its task.

    Args:
        hosts: the host of each slot, by the number of its task.
        before: the host of each slot in the attempt before; empty for the first attempt.
    """
    known: dict[str, deque[int]] = {}
    for number, host in enumerate(before[: len(hosts)]):
        known.setdefault(host, deque()).append(number)
    numbers = {
        task: known[host].popleft() for task, host in sorted(hosts.items()) if known.get(host)
    }
    taken = set(numbers.values())
    free = (number for number in range(len(hosts)) if number not in taken)
    return {task: numbers[task] if task in numbers else next(free) for task in sorted(hosts)}
