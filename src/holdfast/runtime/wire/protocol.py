"""The messages between the driver and the subtasks of an epoch.

The steps are those of the epoch protocol: the driver sends an ``EpochTask`` (1), a subtask loads
(2), processes (4), persists (6) and answers with an ``Acknowledgement`` (7), which the driver
accepts (8). A control message tells a subtask that it has received everything from a producer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.runtime.network.addresses import Location
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.head import Head
from holdfast.state.names import StateId


class SavedOperator(msgspec.Struct, frozen=True, array_like=True):
    """Where the state of an operator is in a checkpoint.

    ``union``: each subtask needs the operator state of all others.
    """

    level: int
    parallelism: int
    union: bool = False


class Origin(msgspec.Struct, frozen=True):
    """The checkpoint that an attempt starts from, in which operators find their state.

    Attributes:
        directory: the directory of its state files; empty for the job's own.
        levels: the heads of its subtasks, by level.
        operators: by uid.
        trusted: whether pickled values in it may be unpickled.
    """

    directory: str
    levels: tuple[tuple[Head, ...], ...]
    operators: dict[str, SavedOperator]
    trusted: bool = True

    def heads(self, uid: str) -> tuple[Head, ...]:
        """Return the heads of an operator's subtasks; none if the operator is new."""
        saved = self.operators.get(uid)
        return () if saved is None else self.levels[saved.level][: saved.parallelism]


class EpochTask(msgspec.Struct, frozen=True):
    """The task of the subtasks of one level for one epoch.

    Attributes:
        heads: the head of the state of each subtask.
        quota: how many records each source subtask may read.
        closing: the last epoch: no records are read; functions are closed at its end.
        draining: no records are read any more; sources count as ended.
        closes_at_end: functions are closed as soon as their input has ended.
        takes_checkpoints: whether the job takes checkpoints; if not, an accepted epoch counts as
            complete.
        restored: whether this attempt started from a checkpoint.
        origin: that checkpoint, until the attempt has state of its own.
        checkpoint: the id of the checkpoint whose barrier ends this epoch, or None.
        savepoint: whether that checkpoint is written as a savepoint.
        completed, aborted: checkpoints that ended since the last notification of listeners.
        plans: the plans for the readers of sources in this epoch, by operator uid.
        ceilings: the watermark up to which aligned sources are read, by operator uid.
        halts: sources that read continuously stop reading from here on, until a task without this:
            the job stops, or changes its plan, with the checkpoint of this epoch.
        homes: the location of each subtask, if it is known; empty if none is known.
    """

    job: str
    attempt: int
    epoch: int
    level: int
    heads: tuple[Head, ...]
    quota: int
    closing: bool = False
    draining: bool = False
    closes_at_end: bool = True
    takes_checkpoints: bool = False
    restored: bool = False
    origin: Origin | None = None
    checkpoint: int | None = None
    checkpoint_timestamp: int = 0
    savepoint: bool = False
    completed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    plans: dict[str, bytes] = {}
    ceilings: dict[str, int] = {}
    halts: bool = False
    homes: tuple[Location | None, ...] = ()


class Control(msgspec.Struct, frozen=True):
    """The last block from a producer subtask to a consumer subtask.

    Attributes:
        ended: whether this producer will not send any more records.
        failed: the producer's user function raised; the epoch has failed.
        watermarks: the watermark on each exchange; None where it is idle.
    """

    ended: bool = False
    failed: bool = False
    watermarks: dict[int, int | None] = {}


class Flow(msgspec.Struct, array_like=True):
    """The traffic of an input or output in an epoch: records, bytes, and processing time here."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Loaded(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of state files that a subtask needed to load its state, by location.

    Attributes:
        stored: read from the checkpoint storage.
        local: read from copies on the disk of its host.
        damaged: how many copies on the disk of its host could not be used.
    """

    stored: int = 0
    local: int = 0
    damaged: int = 0


class Acknowledgement(msgspec.Struct, frozen=True):
    """What one subtask reports at the end of an epoch.

    Attributes:
        head: the head of its state after this epoch.
        finished: its sources have ended, and its inputs have ended.
        seconds: time by protocol step: load, notify, process (of which wait, for input), time,
            flush, snapshot, persist.
        metrics: the user's metrics, by operator uid.
        consumed: the stamps of the upstream runs whose blocks were read, by ``level/subtask``, if
            its engine runs levels one after another.
        saturated: one of its sources reached its quota; there is more to read.
        snapshot_failure: why a function could not take part in the checkpoint; None if all did.
        stateful: with a checkpoint, the uids of the operators that have state here.
        watermarks: the watermark of each operator that has one, by uid.
        idle: the operators that are idle, by uid.
        states: with a checkpoint, the states of this subtask, by operator uid.
        began: when the run began, by the clock of its machine, in seconds.
        acknowledged: when this was created, in processing time of the job, in milliseconds.
        taken, sent: what was received and sent, by exchange.
        read: what was read from sources, by operator.
        written: how many records its sinks accepted, by operator uid.
        storing: its state for the checkpoint is still being written; a `StoredState` follows.
        busy_seconds, idle_seconds, backpressured_seconds: how it spent its time since its last
            acknowledgement, if its engine measures that: otherwise all are zero.
        loaded: in the first acknowledgement of an attempt, what it read to load its state, if its
            engine measures that.
        home: its location, for the next task, if that may be given to another process.
    """

    level: int
    subtask: int
    stamp: str
    head: Head
    finished: bool
    records_in: int
    records_out: int
    records_read: int
    seconds: dict[str, float]
    metrics: dict[str, dict[str, Any]]
    consumed: dict[str, str] = {}
    saturated: bool = False
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
    written: dict[str, int] = {}
    storing: bool = False
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    backpressured_seconds: float = 0.0
    loaded: Loaded | None = None
    home: Location | None = None


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """What a subtask did since its last acknowledgement, while an epoch takes long.

    For engines whose subtasks keep their state. The fields are those of `Acknowledgement`.
    """

    level: int
    subtask: int
    taken: dict[int, Flow]
    sent: dict[int, Flow]
    read: dict[int, Flow]
    busy_seconds: float
    idle_seconds: float
    backpressured_seconds: float


class StoredState(msgspec.Struct, frozen=True):
    """A subtask's state of a checkpoint is in the storage, or could not be written.

    For engines whose subtasks continue while their state is written.

    Attributes:
        head: the head of its state at the checkpoint's barrier; meaningless after a failure.
        failure: why it could not be written; None if it was.
        stored: when it was stored, in processing time of the job, in milliseconds.
        seconds: how long it took, since the barrier.
        pickled: the states with pickled values: operator, name, and whether it is by namespace.
            This is known only after the state was written.
    """

    checkpoint: int
    level: int
    subtask: int
    head: Head
    failure: str | None = None
    stored: int = 0
    seconds: float = 0.0
    pickled: tuple[StateId, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """An exception that is sent to the driver; without an operator it is one of Holdfast's own.

    Attributes:
        traceback: the user's part of the traceback.
        all_frames: the whole traceback.
    """

    operator: str | None
    subtask: int
    record: str | None
    error: str
    traceback: str
    pickled: bytes | None = None
    all_frames: str = ""
    transient: bool = False


encode = msgspec.msgpack.Encoder().encode
decode_control = msgspec.msgpack.Decoder(Control).decode
decode_acknowledgement = msgspec.msgpack.Decoder(Acknowledgement).decode
decode_stored_state = msgspec.msgpack.Decoder(StoredState).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode
decode_log = msgspec.msgpack.Decoder(list[bytes]).decode
