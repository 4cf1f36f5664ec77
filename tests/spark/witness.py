"""A job that notices if a record is lost or comes twice, and writes down what happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.events import CheckpointRecord, CheckpointStatus
from holdfast.common import Configuration, RestartStrategies
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from holdfast.datastream.state import ListStateDescriptor
from holdfast.errors import JobCancelledError
from tests.gates import Gate, Noted, Numbers

EPOCH = 10
ENDLESS = 10**12
PATIENCE = 600


class Witness(MapFunction, CheckpointedFunction, CheckpointListener):
    """Counts the numbers from 0 that it gets, in operator state, and keeps a diary.

    Each number must be the count of those before it: state and source never stand at two places.
    """

    def __init__(
        self,
        diary: Path,
        failing: Collection[int] = (),
        deeds: Mapping[int, Callable[[], None]] | None = None,
        snapshot_deeds: Mapping[int, Callable[[], None]] | None = None,
        slowness: float = 0.0,
    ) -> None:
        """Snapshots of the ``failing`` checkpoints raise; ``deeds`` are done at their numbers.

        ``snapshot_deeds``: what is done in the snapshots of these checkpoints. ``slowness``: how
        long a snapshot takes, in seconds.
        """
        self._diary = diary
        self._failing = failing
        self._deeds = deeds or {}
        self._snapshot_deeds = snapshot_deeds or {}
        self._slowness = slowness
        self.count = 0
        self._held: dict[int, int] = {}

    def map(self, value: int) -> int:
        assert value == self.count, f"the source is at {value}, the state at {self.count}"
        if value in self._deeds:
            self._deeds[value]()
        self.count += 1
        return value

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("count", int))
        self.count = sum(self.state.get())
        self._note("restored" if context.is_restored() else "fresh", self.count)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        checkpoint = context.get_checkpoint_id()
        self._note("snapshot", checkpoint)
        self._note(f"held-{checkpoint}", self.count)
        self._held[checkpoint] = self.count
        self.state.update([self.count])
        time.sleep(self._slowness)
        if checkpoint in self._snapshot_deeds:
            self._snapshot_deeds[checkpoint]()
        if checkpoint in self._failing:
            msg = f"no snapshot for checkpoint {checkpoint}"
            raise RuntimeError(msg)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._note("completed", checkpoint_id)
        if checkpoint_id in self._held:  # not by an earlier attempt
            self._note("kept", self._held.pop(checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._note("aborted", checkpoint_id)

    def close(self) -> None:
        self._note("closed", self.count)

    def _note(self, what: str, number: int) -> None:
        with self._diary.open("a") as file:
            file.write(f"{what} {number}\n")


class Job:
    """A job of one subtask and small epochs, with a checkpoint every few milliseconds.

    Attributes:
        directory: where its own checkpoints are.
    """

    def __init__(self, folder: Path, checkpoints: Path | None = None, name: str = "job") -> None:
        """The diary is in the folder, and so are the checkpoints, unless told otherwise."""
        self.diary = folder / "diary"
        self.name = name
        checkpoints = checkpoints or folder / "checkpoints"
        self.directory = checkpoints / name
        configuration = Configuration({"holdfast.epoch.max-records": str(EPOCH)})
        self.env = StreamExecutionEnvironment(configuration)
        self.env.set_parallelism(1).set_buffer_timeout(0).enable_checkpointing(10)
        self.env.set_restart_strategy(RestartStrategies.no_restart())
        self.config = self.env.get_checkpoint_config()
        self.config.set_checkpoint_storage_dir(checkpoints.as_uri())

    def start(
        self, numbers: int = ENDLESS, gates: Mapping[int, Gate] | None = None, **witness: Any
    ) -> Any:
        """Start with the numbers below this one; returns the job's client."""
        source = Numbers(numbers, gates)
        self.env.from_source(source).map(Witness(self.diary, **witness)).name("witness")
        return self.env.execute_async(self.name)

    def run(
        self, numbers: int, gates: Mapping[int, Gate] | None = None, **witness: Any
    ) -> list[CheckpointRecord]:
        """Run to the end; what became of the checkpoints."""
        client = self.start(numbers, gates, **witness)
        client.get_job_execution_result().result()
        return list(client.get_checkpoints())

    def cancel_after(self, completed: int) -> list[CheckpointRecord]:
        """Run until so many checkpoints are complete; those that are."""
        client = self.start()
        until(lambda: len(completed_of(client)) >= completed)
        client.cancel().result()
        with pytest.raises(JobCancelledError):
            client.get_job_execution_result().result()
        return completed_of(client)

    def noted(self, what: str) -> list[int]:
        """The numbers behind a word in the diary."""
        lines = [line.split() for line in self.diary.read_text().splitlines()]
        return [int(number) for word, number in lines if word == what]

    def held(self, checkpoint: int) -> int:
        """How many numbers the witness had seen when it took part in a checkpoint."""
        return self.noted(f"held-{checkpoint}")[0]

    def snapshot(self, checkpoint: int) -> Gate:
        """A gate that opens when the witness takes part in a checkpoint."""
        return Noted(self.diary, f"snapshot {checkpoint}")

    def kept(self, count: int) -> Gate:
        """A gate that opens when so many numbers are in a complete checkpoint."""
        return Noted(self.diary, f"kept {count}")

    def completed(self, checkpoint: int) -> Gate:
        """A gate that opens when the witness knows that a checkpoint is complete."""
        return Noted(self.diary, f"completed {checkpoint}")

    def retained(self) -> list[int]:
        """The ids of the checkpoints that are there, oldest first."""
        found = self.directory.glob("chk-*/_metadata")
        return sorted(int(path.parent.name.removeprefix("chk-")) for path in found)


def completed_of(client: Any) -> list[CheckpointRecord]:
    return [
        record for record in client.get_checkpoints() if record.status is CheckpointStatus.COMPLETED
    ]


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)
