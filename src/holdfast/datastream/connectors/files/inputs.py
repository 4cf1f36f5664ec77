"""Many files as inputs, of which only some are open at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final, overload

from holdfast.filesystem import FileSystem

_MOST_OPEN: Final = 128


class CompactorInputs(Sequence[BinaryIO]):
    """Files that are opened when they are taken. Of many, only those taken last stay open.

    A bucket may wait for its compaction for thousands of checkpoints.
    """

    def __init__(self, system: FileSystem, paths: Sequence[str]) -> None:
        self._system = system
        self._paths = paths
        self._open: dict[int, BinaryIO] = {}

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> BinaryIO: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BinaryIO]: ...
    def __getitem__(self, index: int | slice) -> BinaryIO | Sequence[BinaryIO]:
        number = range(len(self))[index]
        if isinstance(number, range):
            return [self[each] for each in number]
        if number not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            self._open[number] = self._system.open_input(self._paths[number])
        return self._open[number]

    def close(self) -> None:
        for file in self._open.values():
            file.close()
