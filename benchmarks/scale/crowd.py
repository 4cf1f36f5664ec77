"""A process with many slots, each in a thread with a connection of its own to the driver.

Light slots run no user code, and the driver cannot tell them from others. They say hello,
acknowledge each round for one subtask per level, and write a small state file for each checkpoint.
They have no connections to each other. Whole slots are those of the product, with all their
connections and threads, and subtasks that have nothing to read.

The process reads a pickled `Crowd` from standard input, and ends when the attempt does.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast.common.time import wall_clock
from holdfast.filesystem import file_system_of
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.peers import GONE, connect
from holdfast.runtime.resident.messages import Hello, Say, Wire, decode_round, encode
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.slot import Slot, SlotLostError
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.subtask import make_stamp
from holdfast.runtime.wire.blocks import BlockHeader, Kind, encode_header
from holdfast.runtime.wire.protocol import Acknowledgement, EpochTask, Flow, StoredState
from holdfast.runtime.worker.job_code import unpack
from holdfast.runtime.worker.memory import resident_bytes
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.files import StateFile, encode_file
from holdfast.state.format.head import FileRef, Head, files_to_fold
from holdfast.state.storage.directory import StateStorage
from holdfast.state.storage.staged import state_storage

__all__ = ["PATIENCE", "Crowd", "live"]

#: how long the driver may take to let a slot in, in seconds
PATIENCE: Final = 60.0
#: a state of this size, in bytes, is behind the small changes of each checkpoint
_BASE: Final = 4096


@dataclass(frozen=True)
class Crowd:
    """Some slots of an attempt.

    Attributes:
        numbers: those of the slots.
        levels: for each level, its stateful operators.
        states: the address of the state files.
        heartbeat: that of the driver, in seconds.
        code: the job, for whole slots; empty for light ones.
    """

    driver: Address
    job: str
    attempt: int
    numbers: Sequence[int]
    levels: tuple[tuple[str, ...], ...]
    states: str
    heartbeat: float
    code: bytes = b""


class _Rounds:
    """What the driver says to all slots, decoded once for all of them."""

    def __init__(self) -> None:
        self._data = b""
        self._tasks: tuple[EpochTask, ...] = ()
        self._lock = threading.Lock()

    def decode(self, data: memoryview) -> tuple[EpochTask, ...]:
        with self._lock:
            if self._data != data:
                self._data, self._tasks = bytes(data), decode_round(data).unpacked()
            return self._tasks


class _LightSlot:
    """One of them."""

    def __init__(self, crowd: Crowd, number: int, storage: StateStorage, rounds: _Rounds) -> None:
        self._crowd = crowd
        self._number = number
        self._storage = storage
        self._rounds = rounds
        self._heads = [Head()] * len(crowd.levels)
        self._blocks = 0
        self.wire: Wire | None = None

    def serve(self) -> None:
        """Answer the driver until the attempt is over."""
        crowd = self._crowd
        self.wire = wire = Wire(connect(crowd.driver, PATIENCE))
        place = (crowd.driver.host, 1, socket.gethostname(), os.getpid())
        wire.send(Say.HELLO, data=encode(Hello(crowd.job, crowd.attempt, self._number, *place)))
        wire.receive()  # the welcome
        wire.send(Say.READY)
        with suppress(*GONE):
            while (frame := wire.receive()).kind != Say.STOP:
                if frame.kind == Say.ROUND:
                    self._answer(wire, self._rounds.decode(frame.data))
        wire.close()

    def say_alive(self) -> None:
        """Tell the driver that it lives, if it is there."""
        if self.wire is not None:
            with suppress(*GONE):
                self.wire.send(Say.ALIVE)

    def _answer(self, wire: Wire, tasks: Sequence[EpochTask]) -> None:
        for task in tasks:
            if task.heads:
                self._heads[task.level] = task.heads[self._number]
            self._acknowledge(wire, task)
        for task in tasks:
            if task.checkpoint is not None:
                self._store(wire, task, task.checkpoint)

    def _acknowledge(self, wire: Wire, task: EpochTask) -> None:
        level, uids = task.level, self._crowd.levels[task.level]
        barrier = task.checkpoint is not None
        states = {uid: (SavedState("count", "value", (None,)),) for uid in uids}
        flow = {level: Flow(1000, 20_000, 0.01)}
        ack = Acknowledgement(
            level,
            self._number,
            f"0-{level}-{self._number}",
            self._heads[level],
            finished=False,
            records_in=1000,
            records_out=1000,
            records_read=1000 if level == 0 else 0,
            seconds={"load": 0.0, "notify": 0.0, "flush": 0.0, "time": 0.0, "persist": 0.0},
            metrics={},
            rss=resident_bytes() if level == 0 else 0,
            process=os.getpid(),
            stateful=uids if barrier else (),
            watermarks=dict.fromkeys(uids, 1_700_000_000_000),
            states=states if barrier else {},
            began=time.time(),
            acknowledged=time.time_ns() // 1_000_000,
            taken=flow,
            sent=flow,
            storing=barrier,
            busy_seconds=0.1,
            idle_seconds=0.1,
        )
        header = BlockHeader(
            Kind.ACKNOWLEDGEMENT,
            len(self._crowd.levels),
            self._number,
            -1,
            level,
            self._number,
            self._blocks,
            0,
            ack.stamp,
        )
        self._blocks += 1
        wire.send(Say.BLOCK, encode_header(header), encode(ack))

    def _store(self, wire: Wire, task: EpochTask, checkpoint: int) -> None:
        head = self._heads[task.level]
        name = make_stamp(task.epoch, task.level, self._number)
        data = encode_file(StateFile(()), name)
        fold = files_to_fold([file.size for file in head.files], len(data))
        if fold == len(head.files):
            data = encode_file(StateFile((), {("", "base"): os.urandom(_BASE)}), name)
        self._storage.write(name, data)
        ref = FileRef(name, len(data), head.since(fold), task.epoch)
        head = self._heads[task.level] = head.extended(ref, name, 0, fold)
        state = StoredState(checkpoint, task.level, self._number, head)
        wire.send(Say.STORED, data=encode(state))


def live(crowd: Crowd) -> None:
    """Be these slots until the attempt is over."""
    if crowd.code:
        threads = [
            threading.Thread(target=_be_whole, args=(crowd, number)) for number in crowd.numbers
        ]
        for thread in threads:
            thread.start()
    else:
        _be_light(crowd)


def _be_whole(crowd: Crowd, number: int) -> None:
    job = unpack(crowd.code)  # every slot has a copy of its own, as processes have
    files, path = file_system_of(crowd.states)

    def make(level: int, subtask: int, post: Post) -> ResidentSubtask:
        storage = state_storage(path, files, None)
        return ResidentSubtask(job, level, subtask, crowd.attempt, storage, wall_clock, post)

    slot = Slot(job, crowd.attempt, number, make, crowd.heartbeat)
    with suppress(SlotLostError):
        slot.serve(crowd.driver, crowd.driver.host)


def _be_light(crowd: Crowd) -> None:
    files, path = file_system_of(crowd.states)
    storage, rounds = state_storage(path, files, None), _Rounds()
    slots = [_LightSlot(crowd, number, storage, rounds) for number in crowd.numbers]
    threads = [threading.Thread(target=slot.serve, daemon=True) for slot in slots]
    for thread in threads:
        thread.start()
    while alive := [thread for thread in threads if thread.is_alive()]:
        for slot in slots:
            slot.say_alive()
        alive[0].join(crowd.heartbeat / 5)


if __name__ == "__main__":
    print("ready", flush=True)
    live(pickle.load(sys.stdin.buffer))
