"""The messages between the driver and the subtasks of an epoch.

The steps are those of the epoch protocol: the driver sends an ``EpochTask`` (1), a subtask loads
(2), processes (4), persists (6) and answers with an ``Acknowledgement`` (7), which the driver
accepts (8). Control messages tell a subtask that it has heard everything from a producer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain


class SavedOperator(msgspec.Struct, frozen=True, array_like=True):
    """Where the state of an operator is in a checkpoint.

    ``union``: each subtask needs operator state of all others.
    """

    level: int
    parallelism: int
    union: bool = False


class Origin(msgspec.Struct, frozen=True):
    """The checkpoint that an attempt begins with, for operators to find their state in.

    Attributes:
        directory: that of its state files; empty for the job's own.
        levels: the chains of its subtasks, by level.
        operators: by uid.
        trusted: whether what is pickled there may be unpickled.
    """

    directory: str
    levels: tuple[tuple[Chain, ...], ...]
    operators: dict[str, SavedOperator]
    trusted: bool = True

    def chains(self, uid: str) -> tuple[Chain, ...]:
        """The chains of an operator's subtasks; none if the operator is new."""
        saved = self.operators.get(uid)
        return () if saved is None else self.levels[saved.level][: saved.parallelism]


class EpochTask(msgspec.Struct, frozen=True):
    """What the subtasks of one level are told for one epoch.

    Attributes:
        chains: the head of the state of each subtask.
        quota: how many records each source subtask may read.
        closing: the last epoch: no records are read; functions are closed at its end.
        draining: no records are read any more; sources count as ended.
        closes_at_end: functions are closed as soon as their input has ended.
        takes_checkpoints: whether this job does; if not, an accepted epoch counts as complete.
        restored: whether this attempt began at a checkpoint.
        origin: that checkpoint, until the attempt has state of its own.
        checkpoint: the id of the checkpoint whose barrier ends this epoch, or None.
        completed, aborted: checkpoints that ended since listeners were last told.
        plans: what the readers of sources are told about this epoch, by operator uid.
        ceilings: up to which watermark aligned sources are read, by operator uid.
        halts: sources that go on reading by themselves stand still from here on, until a task
            without this: the job stops or leaves with the checkpoint of this epoch.
    """

    job: str
    attempt: int
    epoch: int
    level: int
    chains: tuple[Chain, ...]
    quota: int
    closing: bool = False
    draining: bool = False
    closes_at_end: bool = True
    takes_checkpoints: bool = False
    restored: bool = False
    origin: Origin | None = None
    checkpoint: int | None = None
    checkpoint_timestamp: int = 0
    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    plans: dict[str, bytes] = {}
    ceilings: dict[str, int] = {}
    halts: bool = False


class Control(msgspec.Struct, frozen=True):
    """The last block from a producer subtask to a consumer subtask.

    Attributes:
        ended: the exchanges on which this producer will never send again.
        failed: the producer's user function raised; the epoch is lost.
        watermarks: how far time is on each exchange; None where it is idle.
    """

    ended: tuple[int, ...] = ()
    failed: bool = False
    watermarks: dict[int, int | None] = {}


class Flow(msgspec.Struct, array_like=True):
    """What went one way in an epoch: records, their bytes, and the time that they took here."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Loaded(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of state files that a subtask needed to load its state, by where they were.

    Attributes:
        stored: in the storage of the checkpoints.
        local: on the disk of its host.
        damaged: how many copies on the disk of its host could not be used.
    """

    stored: int = 0
    local: int = 0
    damaged: int = 0


class Acknowledgement(msgspec.Struct, frozen=True):
    """What one subtask reports at the end of an epoch.

    Attributes:
        consumed: the stamps of the upstream runs whose blocks were read, by ``level/subtask``.
        chain: the head of its state after this epoch.
        finished: its sources will give no more records, and its inputs have ended.
        saturated: a source of it reached its quota; there is more to read.
        seconds: time by protocol step: load, notify, process (of which wait, for input), time,
            flush, snapshot, persist.
        metrics: the user's metrics, by operator uid.
        snapshot_failure: why a function could not take part in the checkpoint, if one could not.
        stateful: with a checkpoint, the uids of the operators that have state here.
        watermarks: how far time is in each operator that has any, by uid.
        idle: the operators that hold nobody up, by uid.
        states: with a checkpoint, the states that are here, by operator uid.
        began: when the run began, by the clock of its machine, in seconds.
        acknowledged: when this was made, by the job's processing time, in milliseconds.
        taken, sent: what came in and went out, by exchange.
        read: what sources gave, by operator.
        storing: its state of the checkpoint is still being written; a `StoredState` follows.
        busy_seconds, idle_seconds, backpressured_seconds: where its time went since its last
            acknowledgement, if its engine measures that: all zero if not.
        loaded: in the first one of an attempt, what it read to load its state, if its engine
            measures that.
    """

    level: int
    subtask: int
    stamp: str
    consumed: dict[str, str]
    chain: Chain
    finished: bool
    saturated: bool
    records_in: int
    records_out: int
    records_read: int
    seconds: dict[str, float]
    metrics: dict[str, dict[str, Any]]
    rss: int = 0
    process: int = 0
    snapshot_failure: str | None = None
    stateful: tuple[str, ...] = ()
    watermarks: dict[str, int] = {}
    idle: tuple[str, ...] = ()
    states: dict[str, tuple[SavedState, ...]] = {}
    began: float = 0.0
    acknowledged: int = 0
    taken: dict[int, Flow] = {}
    sent: dict[int, Flow] = {}
    read: dict[int, Flow] = {}
    storing: bool = False
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    backpressured_seconds: float = 0.0
    loaded: Loaded | None = None


class StoredState(msgspec.Struct, frozen=True):
    """A subtask's state of a checkpoint is in the storage, or could not be written.

    For engines whose subtasks go on while their state is written.

    Attributes:
        chain: the head of its state at the checkpoint's barrier; without meaning after a failure.
        failure: why it could not be written, if it could not.
        stored: when, by the job's processing time, in milliseconds.
        seconds: how long it took, since the barrier.
        pickled: the states of which something is pickled in it: operator, name, and whether it is
            by namespace. Before it was written nobody knew.
    """

    checkpoint: int
    level: int
    subtask: int
    chain: Chain
    failure: str | None = None
    stored: int = 0
    seconds: float = 0.0
    pickled: tuple[tuple[str, str, bool], ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """An exception on its way to the driver; without an operator it is one of our own."""

    operator: str | None
    subtask: int
    record: str | None
    error: str
    traceback: str
    pickled: bytes | None = None


encode = msgspec.msgpack.Encoder().encode
decode_control = msgspec.msgpack.Decoder(Control).decode
decode_acknowledgement = msgspec.msgpack.Decoder(Acknowledgement).decode
decode_stored_state = msgspec.msgpack.Decoder(StoredState).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode
decode_log = msgspec.msgpack.Decoder(list[bytes]).decode
