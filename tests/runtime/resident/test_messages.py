"""What is said between driver and slots: as it was, and no more bytes than needed."""

from __future__ import annotations

import pytest

from holdfast.runtime.resident.messages import decode_round, encode, pack_round
from holdfast.runtime.wire.protocol import EpochTask, Origin, SavedOperator
from holdfast.state.format.head import FileRef, Head

SUBTASKS = 20


def head(level: int, subtask: int) -> Head:
    return Head((FileRef(f"9-{level}-{subtask}-name", 100, -1, 9),), (f"9-{level}-{subtask}",))


LEVELS = tuple(tuple(head(level, subtask) for subtask in range(SUBTASKS)) for level in range(3))
ORIGIN = Origin("", LEVELS, {"count": SavedOperator(1, SUBTASKS)})


def tasks(levels: tuple[tuple[Head, ...], ...], origin: Origin | None) -> tuple[EpochTask, ...]:
    return tuple(
        EpochTask("job", 1, 10, level, heads, quota=1, origin=origin)
        for level, heads in enumerate(levels)
    )


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(tasks(LEVELS, ORIGIN), id="goes on with the heads of the checkpoint"),
        pytest.param(tasks(((Head(),) * 2,) * 4, ORIGIN), id="another plan takes over"),
        pytest.param(tasks(((Head(),) * 2,) * 4, None), id="no checkpoint"),
        pytest.param(tasks(((),) * 3, None), id="a later round"),
        pytest.param((), id="no levels"),
    ],
)
def test_tasks_arrive_as_they_were_sent(given: tuple[EpochTask, ...]) -> None:
    assert decode_round(encode(pack_round(given))).unpacked() == given


def test_every_head_is_sent_once() -> None:
    data = encode(pack_round(tasks(LEVELS, ORIGIN)))
    assert [data.count(f"9-1-{n}-name".encode()) for n in range(SUBTASKS)] == [1] * SUBTASKS
