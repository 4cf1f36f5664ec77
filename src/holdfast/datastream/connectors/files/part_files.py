"""From hidden segments to part files, on any file system.

A transaction writes segments for each bucket: hidden files with their own names. If an epoch
may be repeated, each run of it has a transaction; otherwise one lasts until the checkpoint. All
segments up to a checkpoint become parts; a part is published, as one file under its final name,
when the checkpoint is complete:

    <base>/.holdfast-<sink>/.<attempt>-<subtask>-<random>     a segment; with ``-waits`` at the end
                                                              if it may wait for a compaction
    <base>/.holdfast-<sink>/.kept-<random>                    the segments that a savepoint names
    <base>/<bucket>/<prefix>-<token>-<subtask>-<n><suffix>    a part file

Segments of a row format become a part by their bytes, when it is published. Segments of a bulk
format are merged into one before the checkpoint (`holdfast.datastream.connectors.files.bulk_sink`),
so that the part has one segment, of known size.

Invariant: the first segment of a part exists if and only if the part is not published, and when
it has the size of the whole part it is the whole part. Consequence: publishing can be interrupted,
repeated, and done by two processes at a time, and the part file appears once, complete.

Invariant: a segment that a savepoint names is deleted only when it is published. Attempts of one
program know the last checkpoint and nothing of savepoints, which is why there are notes
(`holdfast.filesystem.kept_files`). A program that continues from the state of another one does not
know whether that one still runs, so it leaves alone what is younger than a day.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import BinaryIO, Final, NamedTuple

from holdfast.common.plain_names import plain_name
from holdfast.common.time import wall_clock
from holdfast.datastream.connectors.files.inputs import CompactorInputs
from holdfast.datastream.connectors.files.shared import Waited, unpublished
from holdfast.datastream.connectors.tables.formats import is_delta_table
from holdfast.filesystem import (
    FileStatus,
    FileSystem,
    FileSystemError,
    MissingFileError,
    cause_of,
    file_system_of,
    join,
)
from holdfast.filesystem.kept_files import is_note, keep_files, kept_files
from holdfast.filesystem.probe import probe
from holdfast.printable import get_logger
from holdfast.state.errors import StateCorruptionError

_COPY_BYTES = 1024 * 1024
#: the end of the name of a segment that may be in a checkpoint for long, without being published
_WAITS: Final = "-waits"
#: the age of what other programs left behind at which it is deleted, in ms: they may still run
_OLD: Final = 24 * 3600 * 1000
_logger = get_logger(__name__)


class Segment(NamedTuple):
    """The output of one transaction for one bucket, or a part of it.

    Attributes:
        begun: the processing time of its first record, in milliseconds.
    """

    name: str
    size: int
    begun: int


class Part(NamedTuple):
    """Segments that become one part file.

    Attributes:
        name: the name of the part file; empty before the part belongs to a checkpoint.
    """

    bucket: str
    segments: tuple[Segment, ...]
    name: str = ""

    @property
    def size(self) -> int:
        """Return the number of bytes in all."""
        return sum(segment.size for segment in self.segments)


class OpenSegment:
    """A segment while it is written."""

    __slots__ = ("_grown", "_seen", "begun", "name", "path", "size", "stream", "write")

    def __init__(self, name: str, path: str, stream: BinaryIO, begun: int) -> None:
        """Take the stream of the file."""
        self.name = name
        self.path = path
        self.stream = stream
        self.write = stream.write
        self.size = 0
        self.begun = begun
        #: its size at the last check, and when it was first seen with that size
        self._seen = 0
        self._grown = begun

    def idle(self, now: int) -> int:
        """Return how long nothing was added, as far as was checked."""
        if self.size != self._seen:
            self._seen, self._grown = self.size, now
        return now - self._grown


class Place(NamedTuple):
    """Where a sink writes.

    Attributes:
        base: the address of its directory.
        sink: the id of the sink, which is in the name of its hidden directory.
    """

    base: str
    sink: str

    def resolve(self) -> tuple[FileSystem, str, str]:
        """Return the file system, and the paths of the directory and of the hidden one."""
        system, base = file_system_of(self.base)
        return system, base, path_below(base, _hidden(self.sink))


@dataclass
class FileTransaction:
    """The output of one run of an epoch, or of all epochs up to a checkpoint.

    Attributes:
        place: where its segments are.
        merged: the names of segments whose records are in a segment of a part as well.
        held: how many checkpoints contain it already, without publishing it: it waits for its
            compaction. 0 if it is published with the next one.
        saved: the names of those segments that an earlier checkpoint contains.
        sealed: whether other jobs may publish its part files, under the same names: those that
            start from the same savepoint. So nothing is added to them any more.
        merged_in: where the merged segments are; None if they are in its place.
    """

    place: Place
    parts: list[Part] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    held: int = 0
    saved: list[str] = field(default_factory=list)
    sealed: bool = False
    merged_in: Place | None = None

    @cached_property
    def writing(self) -> dict[str, OpenSegment]:
        """Return the open segment of each bucket; none after the pre-commit, so it is not saved."""
        return {}

    @property
    def names(self) -> list[str]:
        """Return the names of its segments."""
        return [segment.name for part in self.parts for segment in part.segments]

    @property
    def is_named(self) -> bool:
        """Return whether its part files have names."""
        return all(part.name for part in self.parts)


class PartFiles:
    """The segments and part files of a sink, for one subtask of one attempt."""

    def __init__(self, place: Place, attempt: int, subtask: int, compacts: bool = False) -> None:
        self._place = place
        self._suffix = _WAITS if compacts else ""
        self._system, _, self._directory = place.resolve()
        self._attempt = attempt
        #: the prefix of this subtask's segments
        self._own = f".{attempt}-{subtask}-"

    def check_place(self) -> None:
        """Check that part files can be written, and belong there.

        Raises:
            FileSystemError: when not.
        """
        system, base, directory = self._place.resolve()
        try:
            was_there = system.exists(base)
            # NB: named like a segment, so that it is swept if this process dies
            probe(system, join(directory, f"{self._own}{uuid.uuid4().hex}"))
            for path in [directory] if was_there else [directory, base]:
                system.delete_if_empty(path)
            is_table = is_delta_table(system, base)
        except FileSystemError as error:
            raise FileSystemError(
                f"cannot write part files to '{self._place.base}': {cause_of(error)}; let the "
                "job's user write there, and check its fs.* settings"
            ) from error
        if is_table:
            raise FileSystemError(
                f"'{self._place.base}' is a Delta table: its readers would not see part files, and "
                "a VACUUM would delete them; use DeltaSink, or name another directory"
            )

    def open_segment(self, begun: int) -> OpenSegment:
        """Start a segment."""
        return self._open_segment(self._system, self._directory, begun)

    def own_place(self, place: Place) -> Place:
        """Return where this sink writes below the base of a place."""
        return Place(place.base, self._place.sink)

    def close_segment(self, segment: OpenSegment) -> Segment | None:
        """End a segment; None, and no file, if it is empty."""
        with self._system.errors("write", segment.path):
            segment.stream.close()
        if not segment.size:
            self._system.delete(segment.path)
            return None
        return Segment(segment.name, segment.size, segment.begun)

    def fail(self, segment: OpenSegment, error: Exception) -> None:
        """Raise an error of the stream as one that names the file."""
        with self._system.errors("write", segment.path):
            raise error

    def merge(
        self, place: Place, part: Part, merge: Callable[[Sequence[BinaryIO], BinaryIO], None]
    ) -> Part:
        """Return a part of one segment of this sink, which is durable, with the records of several.

        The old segments stay: the epoch may be run again, and needs them then.

        Args:
            place: where the segments are; the new one is in this sink's directory of that base.
            part: the part to merge.
            merge: writes the records of several files as one.
        """
        system, _, directory = place.resolve()
        with contextlib.closing(CompactorInputs(system, _paths(directory, part))) as files:
            files[-1]  # it is deleted first: if it is gone, the part was published
            _, _, target = self.own_place(place).resolve()
            segment = self._open_segment(system, target, part.segments[0].begun)
            with system.errors("write", segment.path), segment.stream:
                merge(files, segment.stream)
        system.sync_files([segment.path])
        whole = system.status(segment.path)
        if whole is None:
            raise MissingFileError(f"somebody has deleted '{system.uri(segment.path)}'")
        return part._replace(segments=(Segment(segment.name, whole.size, segment.begun),))

    def check_whole(self, place: Place, part: Part) -> None:
        """Raise if another job has published some segments of a part, and not all."""
        system, _, directory = place.resolve()
        Waited(system, directory, [segment.name for segment in part.segments]).check_all_gone()

    def sync(self, transaction: FileTransaction) -> None:
        """Make the segments durable."""
        paths = [path for part in transaction.parts for path in _paths(self._directory, part)]
        self._system.sync_files(paths)

    def publish(self, transaction: FileTransaction, may_be_gone: bool = False) -> None:
        """Give all parts of a transaction their names, perhaps again.

        Args:
            transaction: what to publish.
            may_be_gone: whether it may have been published so long ago that a part file may have
                been moved away since.
        """
        system, _, directory = transaction.place.resolve()
        waited = _waited(transaction)
        for part in transaction.parts:
            paths, final = _paths(directory, part), _final_path(transaction.place, part)
            try:
                self._publish(transaction, waited, part, paths, final)
            except MissingFileError:
                if system.exists(paths[0]):
                    raise  # another segment is missing
            if not system.exists(final):
                _report_missing(system, final, paths[0], may_be_gone)
        _delete_merged(transaction)

    def discard(self, transaction: FileTransaction) -> None:
        """Delete the files of a transaction."""
        system, _, directory = transaction.place.resolve()
        for segment in transaction.writing.values():
            with contextlib.suppress(Exception):
                segment.stream.close()
            system.delete(segment.path)
        for name in [*transaction.names, *transaction.merged]:
            if name not in transaction.saved:
                system.delete(path_below(directory, name))

    def without_published(self, transaction: FileTransaction) -> FileTransaction | None:
        """Return a held transaction without the segments that are gone; None if all are.

        They are in a part file that was published after the checkpoint.
        """
        system, _, directory = transaction.place.resolve()
        left = {n for n in transaction.names if system.exists(path_below(directory, n))}
        parts = [
            part._replace(segments=segments)
            for part in transaction.parts
            if (segments := tuple(each for each in part.segments if each.name in left))
        ]
        return _with_left(transaction, parts)

    def left_to_publish(self, transaction: FileTransaction) -> FileTransaction | None:
        """Return a sealed transaction without what other jobs have published; None if all was.

        A part of which some segments are left has no name.
        """
        system, _, directory = transaction.place.resolve()
        parts = []
        for part in transaction.parts:
            final = _final_path(transaction.place, part)
            left = {*unpublished(system, _paths(directory, part), final)}
            segments = tuple(each for each in part.segments if join(directory, each.name) in left)
            if segments:
                parts.append(part if segments == part.segments else Part(part.bucket, segments))
        return _with_left(transaction, parts)

    def keep(self, transactions: Iterable[FileTransaction]) -> None:
        """Note that no attempt may delete the segments of these transactions of a savepoint."""
        names: dict[Place, list[str]] = {}
        for transaction in transactions:
            names.setdefault(transaction.place, []).extend(transaction.names)
        for place, segments in names.items():
            system, _, directory = place.resolve()
            keep_files(system, directory, segments)

    def sweep_earlier(self, places: Collection[Place], keep: Collection[str]) -> None:
        """Delete the segments that earlier attempts of this sink left behind.

        Except those that a savepoint names. Those of an earlier program are deleted when they are a
        day old, unless it compacts: any of its checkpoints may contain them.

        Args:
            places: where earlier programs wrote, from whose state this one continues.
            keep: the names of segments that are about to be published.
        """
        # NB: in this program's own directory, other subtasks of this attempt are at work
        for place in self._own_places(places):
            _sweep(place, keep, partial(_is_of_attempt_before, self._attempt))
        for place in {*places} - {self._place}:
            _sweep(place, keep, _is_old)

    def sweep_own(self, places: Collection[Place], keep: Collection[str] = ()) -> None:
        """Delete leftovers of this subtask in this attempt, old ones, and empty directories."""
        own = self._own_places(places)
        for place in own:
            _sweep(place, keep, lambda status: status.name.startswith(self._own))
        for place in {*places} - own:
            _sweep(place, keep, _is_old)
        for place in {*places} | own:
            system, _, directory = place.resolve()
            with _warning(place):
                system.delete_if_empty(directory)

    def _own_places(self, places: Iterable[Place]) -> set[Place]:
        return {self._place, *map(self.own_place, places)}

    def _open_segment(self, system: FileSystem, directory: str, begun: int) -> OpenSegment:
        name = self._new_name()
        path = join(directory, name)
        return OpenSegment(name, path, system.open_output(path), begun)

    def _publish(
        self,
        transaction: FileTransaction,
        waited: Waited,
        part: Part,
        paths: list[str],
        final: str,
    ) -> None:
        system, base, _ = transaction.place.resolve()
        first, *others = paths
        found, published = system.status(first), system.status(final)
        if found is None:
            return
        if published is not None and (transaction.sealed or published.size == part.size):
            # If a move is a copy, it was interrupted; or another job has published the part.
            system.delete(first)
            return
        if waited.gone and system.exists(first):
            waited.check_all_gone()
            return
        if found.size != part.size:
            # NB: in this program's own directory, because earlier ones are swept now
            whole = path_below(base, _hidden(self._place.sink), self._new_name())
            _concatenate(system, part, paths, whole)
        for path in others:
            system.delete(path)
        system.move(first, final)
        system.sync_files([final])

    def _new_name(self) -> str:
        return f"{self._own}{uuid.uuid4().hex}{self._suffix}"


def check_bucket(bucket: str) -> None:
    """Reject a bucket outside the sink's directory.

    Raises:
        ValueError: when a part of it is not a plain name.
    """
    try:
        for name in _names(bucket):
            plain_name(name)
    except ValueError as error:
        message = (
            f"a record has the bucket {bucket!r}, and {error}; the bucket assigner must return the "
            "relative path of a directory, or replace what it takes from records"
        )
        raise ValueError(message) from error


def path_below(directory: str, *names: str) -> str:
    """Return the path of a name in restored state; it must be in the directory or below it.

    Raises:
        StateCorruptionError: when a name refers to another place.
    """
    try:
        for name in names:
            plain_name(name)
    except ValueError as error:
        message = (
            f"the saved state of a sink that writes to '{directory}' cannot be used: {error}; "
            "start from another checkpoint or savepoint"
        )
        raise StateCorruptionError(message) from error
    return join(directory, *names)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _hidden(sink: str) -> str:
    return f".holdfast-{sink}"


def _paths(directory: str, part: Part) -> list[str]:
    return [path_below(directory, segment.name) for segment in part.segments]


def _final_path(place: Place, part: Part) -> str:
    """Return the path of a part file."""
    _, base, _ = place.resolve()
    return path_below(base, *_names(f"{part.bucket}/{part.name}"))


def _waited(transaction: FileTransaction) -> Waited:
    """Return the segments that were merged, if an earlier checkpoint contains some."""
    system, _, directory = (transaction.merged_in or transaction.place).resolve()
    return Waited(system, directory, transaction.merged if transaction.saved else [])


def _delete_merged(transaction: FileTransaction) -> None:
    system, _, directory = (transaction.merged_in or transaction.place).resolve()
    # NB: the last one first: whoever finds the last segment of a part finds the others as well, and
    # if only earlier ones are left, all of them were published
    for name in reversed(transaction.merged):
        system.delete(path_below(directory, name))


def _concatenate(system: FileSystem, part: Part, paths: list[str], whole: str) -> None:
    """Make the first segment the complete part, in one step."""
    try:
        with system.errors("write", whole), system.open_output(whole) as out:
            for path in paths:
                with system.open_input(path) as source:
                    shutil.copyfileobj(source, out, _COPY_BYTES)
        _check_size(system, part, paths, system.status(whole))
        system.sync_files([whole])
        system.move(whole, paths[0])
        system.sync_files([paths[0]])
    finally:
        system.delete(whole)


def _report_missing(system: FileSystem, final: str, segment: str, may_be_gone: bool) -> None:
    if system.exists(segment):
        message = (
            f"the records of the part file '{system.uri(final)}' were published by another job, "
            "which has started from the same checkpoint or savepoint: the segments in which they "
            "waited are gone"
        )
    else:
        message = (
            f"neither the part file '{system.uri(final)}' nor its segment '{system.uri(segment)}' "
            "is there: somebody has moved or deleted it, or it is on the disk of another machine"
        )
    if not may_be_gone:
        raise MissingFileError(message)
    _logger.warning("%s; the job goes on, since it may have been published long ago", message)


def _check_size(system: FileSystem, part: Part, paths: list[str], whole: FileStatus | None) -> None:
    if whole is None or whole.size != part.size:
        got = 0 if whole is None else whole.size
        raise FileSystemError(
            f"the segments of the part file '{part.name}' have {got} bytes, and {part.size} were "
            f"written; somebody has changed one of {', '.join(map(system.uri, paths))}"
        )


def _with_left(transaction: FileTransaction, parts: list[Part]) -> FileTransaction | None:
    """Return a transaction with these parts of it; None, if there are none."""
    if sum(len(part.segments) for part in parts) < len(transaction.names):
        _logger.warning(
            "the job starts from an older checkpoint: records that it had not published to "
            "'%s' yet were published since, and are not published again",
            transaction.place.base,
        )
    return replace(transaction, parts=parts) if parts else None


def _is_of_attempt_before(end: int, status: FileStatus) -> bool:
    attempt = status.name[1:].split("-")[0]
    return attempt.isdigit() and int(attempt) < end


def _is_old(status: FileStatus) -> bool:
    """Return whether a segment of another program is a leftover, as far as that can be known."""
    if status.name.endswith(_WAITS) or not status.modified:
        return False
    return wall_clock() - status.modified > _OLD


def _sweep(place: Place, keep: Collection[str], is_left_over: Callable[[FileStatus], bool]) -> None:
    """Delete leftovers, except those that a savepoint names."""
    system, _, directory = place.resolve()
    with _warning(place):
        found = system.list_directory(directory)
        kept = {*keep, *kept_files(system, directory, [status.name for status in found])}
        for status in found:
            if status.name not in kept and not is_note(status.name) and is_left_over(status):
                system.delete(join(directory, status.name))


@contextlib.contextmanager
def _warning(place: Place) -> Iterator[None]:
    """Log instead of failing: leftovers are hidden and do no harm."""
    try:
        yield
    except FileSystemError as error:
        _logger.warning("hidden files of an earlier run stay in '%s': %s", place.base, error)
