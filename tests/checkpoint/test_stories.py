"""Long histories of coordinator and store together, as texts: commands, ``----``, what is there.

Commands:

    retain 2             how many checkpoints are retained (1 unless told); before all others
    files a b            the live head from now on; files that are not there are written
    epoch                run an epoch, and delete what nobody needs
    checkpoint           the same, with a checkpoint
    fail snapshot        the same, but the checkpoint fails; also: fail metadata
    restart              start the next attempt from the last completed checkpoint
    damage a             cut a state file short
    driver dies          start anew from what is in the directory
    finish               end the job

A new story is a new file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.events import (
    AttemptStarting,
    CheckpointSettings,
    DiscardCheckpoint,
    EpochAccepted,
    EpochStarting,
    Event,
    InjectBarrier,
    Instruction,
    JobEnding,
    MarkFinished,
    MetadataFailed,
    MetadataWritten,
    Outcome,
    WriteMetadata,
)
from holdfast.checkpoint.metadata import CheckpointMetadata, LevelImage
from holdfast.checkpoint.store import CheckpointStore
from holdfast.state.format.head import FileRef, Head

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


class Teller:
    """The smallest executor there is: it does what the coordinator says."""

    def __init__(self, directory: Path) -> None:
        self.store = CheckpointStore(directory)
        self.retained = 1
        self.live: tuple[str, ...] = ()
        self.boot()

    def boot(self) -> None:
        self.store.release()
        self.store = CheckpointStore(self.store.directory)
        self.store.acquire()
        self.store.clear_finished()
        settings = CheckpointSettings(1, retained=self.retained, tolerable_failures=9)
        self.coordinator = Coordinator(settings, self.store.next_id(), self.store.completed())
        self.epoch, self.failing = 0, ""
        latest = self.store.latest()
        self.go_back(latest)
        self.store.collect(self.live)

    def go_back(self, to: CheckpointMetadata | None) -> None:
        self.live = tuple(r.name for r in to.levels[0].heads[0].files) if to else ()
        self.tell(AttemptStarting(self.epoch, to.id if to else None))

    def run(self, forced: bool, snapshot_failures: tuple[str, ...] = ()) -> None:
        self.epoch += 1
        # NB: the clock stands still, so that only a forced epoch carries a checkpoint
        self.tell(EpochStarting(self.epoch, 0, forced))
        self.tell(EpochAccepted(self.epoch, 0, snapshot_failures))
        self.store.collect(self.live)

    def tell(self, event: Event) -> None:
        for instruction in self.coordinator.handle(event):
            self.obey(instruction)

    def obey(self, instruction: Instruction) -> None:
        match instruction:
            case InjectBarrier(checkpoint):
                self.store.begin(checkpoint)
            case WriteMetadata(checkpoint, epoch) if self.failing == "metadata":
                self.tell(MetadataFailed(checkpoint, epoch, "disk full"))
            case WriteMetadata(checkpoint, epoch):
                self.store.write(self.image(checkpoint, epoch))
                self.tell(MetadataWritten(checkpoint, epoch, 0))
            case DiscardCheckpoint(checkpoint):
                self.store.discard(checkpoint)
            case MarkFinished():
                self.store.mark_finished()

    def image(self, checkpoint: int, epoch: int) -> CheckpointMetadata:
        refs = tuple(FileRef(name, len(name), n - 1, n) for n, name in enumerate(self.live))
        levels = (LevelImage(1, (Head(refs, self.live),)),)
        return CheckpointMetadata(checkpoint, 0, epoch, "story", False, levels, {})

    def do(self, command: str) -> None:
        match command.split():
            case ["retain", number]:
                self.retained = int(number)
                self.boot()
            case ["files", *names]:
                self.live = tuple(names)
                for name in names:
                    self.store.storage.write(name, name.encode())
            case ["epoch"]:
                self.run(forced=False)
            case ["checkpoint"]:
                self.run(forced=True)
            case ["fail", "snapshot"]:
                self.run(True, ("boom",))
            case ["fail", what]:
                self.failing = what
                self.run(forced=True)
                self.failing = ""
            case ["restart"]:
                last = self.coordinator.completed
                self.go_back(self.store.read(last[-1]) if last else None)
            case ["damage", name]:
                self.store.storage.write(name, b"")
            case ["driver", "dies"]:
                self.boot()
            case ["finish"]:
                self.tell(JobEnding(self.epoch, Outcome.FINISHED))
            case _:
                raise AssertionError(f"no such command: {command!r}")

    def show(self) -> Iterator[str]:
        if self.store.notes.is_finished():
            yield "finished"
        for checkpoint in self.store.completed():
            files = (ref.name for ref in self.store.read(checkpoint).levels[0].heads[0].files)
            yield " ".join([f"chk-{checkpoint}:", *files])
        yield " ".join(["state:", *sorted(file.name for file in self.store.state.list())])


def blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The commands, and what is expected after them."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    commands: list[str] = []
    expected: list[str] | None = None
    for line in [*lines, ""]:
        if line == "----":
            expected = []
        elif line and expected is not None:
            expected.append(line)
        elif line:
            commands.append(line)
        elif expected is not None:
            yield commands, expected
            commands, expected = [], None


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, tmp_path: Path) -> None:
    teller = Teller(tmp_path)
    for commands, expected in blocks(story.read_text()):
        for command in commands:
            teller.do(command)
        assert list(teller.show()) == expected, commands
    teller.store.release()
