"""What the process of a program is told: which run it is, and where its files go.

Everything of a run is in one directory:

    <run>/order.json          this order
    <run>/jobs/<n>.json       what the n-th job of the program reads and writes
    <run>/pace.json           how fast sources read; see `pacing`
    <run>/read/<source>-<n>   how many records subtask n of a source has read
    <run>/agents/<pid>        a process that can be told to cut a connection; see `agent`
    <run>/faults              faults at steps of epochs; see `holdfast.testing.FaultPlan`
    <run>/checkpoints         a link to the checkpoint storage, <run>/store
    <run>/savepoints, <run>/sinks
    <run>/output              what the program writes itself
    <run>/stdout, <run>/log   standard output and error, of all starts
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

#: the variable that has the directory of the run, in the program's process and its workers
VARIABLE: Final = "HOLDFAST_TORTURE_RUN"
#: what stands for that directory in the program's arguments
PLACEHOLDER: Final = "{run}"
_OUTPUT: Final = "output"


class Order(msgspec.Struct, frozen=True):
    """One run of a program.

    Attributes:
        directory: of the run.
        shared: a directory for what all runs must agree on, such as the ends of topics.
        name: of the run; part of the names of topics and tables.
        program: a file, or the name of a module.
        settings: of the command line.
        disturbed: whether faults are going to strike.
        interval_ms: the longest interval of checkpoints in a disturbed run.
        heartbeat_ms: after which a silent process is lost, in a disturbed run.
        records: how many records are read of each source; 0: all, so it must have an end.
    """

    directory: str
    shared: str
    name: str
    program: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    settings: dict[str, str] = {}
    disturbed: bool = False
    interval_ms: int = 300
    heartbeat_ms: int = 2_000
    records: int = 0

    @property
    def path(self) -> Path:
        """Return the directory of the run."""
        return Path(self.directory)

    @property
    def output(self) -> Path:
        """Return the directory for what the program writes itself."""
        return self.path / _OUTPUT

    def own_arguments(self) -> list[str]:
        """Return the program's arguments, with the directory for its output."""
        return [argument.replace(PLACEHOLDER, str(self.output)) for argument in self.arguments]


class SinkPlace(msgspec.Struct, frozen=True):
    """Where a sink of a job writes in this run, and how that is to be compared.

    Attributes:
        id: the same in all runs of the program.
        kind: the name of a reader, such as ``files`` or ``kafka``; empty if it cannot be read.
        guarantee: a value of `Guarantee`.
        place: what the reader of this kind needs.
    """

    id: str
    name: str
    kind: str = ""
    guarantee: str = ""
    place: dict[str, Any] = {}


class JobNote(msgspec.Struct, frozen=True):
    """A job of a program, as its process notes it when it is started.

    Attributes:
        parallelism: of its widest operator.
        unheld: the names of sources that can neither be slowed down nor kept from ending.
    """

    name: str
    parallelism: int
    sinks: tuple[SinkPlace, ...]
    unheld: tuple[str, ...] = ()


def write_order(order: Order) -> Path:
    """Make the directory of a run; returns the path of its order."""
    order.output.mkdir(parents=True, exist_ok=True)
    for name in ("jobs", "read", "agents", "sinks"):
        (order.path / name).mkdir(exist_ok=True)
    path = order.path / "order.json"
    path.write_bytes(msgspec.json.encode(order))
    return path


def read_order(path: str | os.PathLike[str]) -> Order:
    """Return an order that was written."""
    return msgspec.json.decode(Path(path).read_bytes(), type=Order)


def write_note(run: Path, number: int, note: JobNote) -> None:
    """Note a job, once it is known."""
    (run / "jobs" / f"{number}.json").write_bytes(msgspec.json.encode(note))


def read_notes(run: Path) -> list[JobNote]:
    """Return the jobs of a run, in the order in which the program started them."""
    paths = sorted((run / "jobs").glob("*.json"), key=lambda path: int(path.stem))
    return [msgspec.json.decode(path.read_bytes(), type=JobNote) for path in paths]


def run_directory(default: str | os.PathLike[str] = ".") -> Path:
    """Return the directory for a program's own output under ``holdfast torture``, or the default.

    In functions too: workers have the variable of their driver only on the same machine, so a
    program for a cluster gets the directory as an argument, as ``{run}``.
    """
    found = os.environ.get(VARIABLE)
    return Path(found if found else default)
