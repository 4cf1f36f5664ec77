"""What many clients ask for at once is made once, and never told to who may not look."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.history.events import StatusChanged
from holdfast.history.job import JobHistory
from holdfast.rest import answers
from holdfast.rest.answers import Answers
from tests.rest.conftest import Serve
from tests.serving import LocalJob


class Asked:
    """Asks for answers, which say how many were made before, at times that a test chooses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made = 0
        self.history = JobHistory()
        self.answers = Answers(lambda: self.now)

    def __call__(self, asked: str = "/plan", history: JobHistory | None = None) -> int:
        def make() -> bytes:
            self.made += 1
            return str(self.made).encode()

        return int(self.answers.of(history or self.history, asked, make))


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_the_same_is_made_once(asked: Asked) -> None:
    assert [asked(), asked(), asked("/epochs"), asked("/epochs"), asked()] == [1, 1, 2, 2, 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda asked: asked.history.tell(StatusChanged(1, "RUNNING")),
        lambda asked: setattr(asked, "history", JobHistory()),
        lambda asked: setattr(asked, "now", 0.5),
    ],
    ids=["the history", "another history", "time"],
)
def test_what_has_changed_is_made_anew(asked: Asked, change: Callable[[Asked], None]) -> None:
    assert asked() == 1
    change(asked)
    assert [asked(), asked()] == [2, 2]


def test_what_fails_is_not_remembered(asked: Asked) -> None:
    def fail() -> bytes:
        raise ValueError("no such vertex")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such vertex"):
            asked.answers.of(asked.history, "/plan", fail)
    assert asked() == 1


def test_the_memory_is_short(asked: Asked) -> None:
    for number in range(1000):
        asked.now = number / 1000
        asked(str(number))
        assert len(asked.answers._known) <= 100
    asked.now = 10.0
    asked("last")
    assert list(asked.answers._known) == ["last"]


# The server


@pytest.fixture
def looks(job: LocalJob, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each look at the history of the job; answers last for as long as it is the same."""
    counted: list[int] = []
    look = job.history.look

    def counting_look(view: Callable[[JobHistory], object]) -> object:
        counted.append(1)
        return look(view)

    monkeypatch.setattr(answers, "_LASTING", 1e9)
    monkeypatch.setattr(job.history, "look", counting_look)
    return counted


def test_clients_get_the_same_bytes(serve: Serve, job: LocalJob, looks: list[int]) -> None:
    ask = serve(job)
    first = ask.job("/checkpoints")
    assert [ask.job("/checkpoints").body for _ in range(3)] == [first.body] * 3
    assert len(looks) == 1
    assert ask.job("/epochs?since=2").body != ask.job("/epochs?since=3").body
    assert len(looks) == 3
    assert ask.job(f"/vertices/{'f' * 32}").status == 404
    assert ask.job(f"/vertices/{'f' * 32}").status == 404


def test_only_who_may_look_is_told(serve: Serve, job: LocalJob, looks: list[int]) -> None:
    ask = serve(job, token="open sesame", read_token="just looking")

    def status(token: str | None) -> int:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return ask.job("/checkpoints", headers=headers).status

    assert [status(token) for token in ("open sesame", "just looking")] == [200, 200]
    assert [status(token) for token in (None, "wrong", "open sesam")] == [401, 401, 401]
    assert len(looks) == 1
