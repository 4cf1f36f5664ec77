"""The supervisor and the view, with a program that takes no time in the place of the job."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from examples.orders import chaos as chaos_module
from examples.orders.chaos import Chaos, DriverFailed, Supervisor, this_program
from examples.orders.progress import Checkpoint, Incident, Progress
from examples.orders.story import Story
from examples.orders.timeline import draw, page, write_page
from examples.orders.view import LineView, TerminalView, render

#: stands in for the program: tells of some progress, waits for a kill in its first life
DRIVER = """
    import sys, time
    from pathlib import Path
    import msgspec
    from examples.orders.progress import Checkpoint, Progress

    lives = Path(sys.argv[1])
    with lives.open("a") as file:
        file.write("x")
    life = len(lives.read_text())
    done = tuple(Checkpoint(n, "COMPLETED", 10, 10) for n in (1, 2))
    for events in (0, 50, 100):
        progress = Progress("RUNNING", events, 10.0, {{"paid": events}}, checkpoints=done)
        print(msgspec.json.encode(progress).decode(), flush=True)
    {end}
"""


class Recording:
    """A view that keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[Progress] = []

    def update(self, progress: Progress) -> None:
        self.shown.append(progress)

    def close(self) -> None:
        """Nothing to do."""


def supervisor(tmp_path: Path, end: str, view: Recording | None = None) -> Supervisor:
    program = tmp_path / "driver.py"
    program.write_text(textwrap.dedent(DRIVER.format(end=end)))
    command = [sys.executable, str(program), str(tmp_path / "lives")]
    return Supervisor(command, tmp_path / "log", view or Recording())


@pytest.fixture(autouse=True)
def path_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_a_program_is_killed_once_and_started_again(tmp_path: Path) -> None:
    view = Recording()
    chaos = supervisor(tmp_path, "time.sleep(0 if life == 2 else 60)", view)
    chaos.run(Chaos(kill_after=100))
    assert chaos.kills == 1
    assert (tmp_path / "lives").read_text() == "xx"
    told = [incident.text for incident in view.shown[-1].incidents]
    assert "kill -9 of the driver" in told[0]
    assert told[1] == "counts on from 50 orders"
    # nothing falls to zero
    assert 0 not in [one.total for one in view.shown[view.shown.index(first(view, 50)) :]]
    assert [life.ended is not None for life in chaos.story.lives] == [True, True]


def first(view: Recording, total: int) -> Progress:
    return next(progress for progress in view.shown if progress.total == total)


def test_a_job_is_rescaled_before_the_program_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Future[str] = Future()
    done.set_result("rescaled from 2 to 4 subtasks per operator")
    asked: list[int] = []

    def rescale(progress: Progress, parallelism: int) -> Future[str]:
        asked.append(parallelism)
        return done

    monkeypatch.setattr(chaos_module, "_rescale", rescale)
    view = Recording()
    chaos = supervisor(tmp_path, "time.sleep(0 if life == 2 else 60)", view)
    chaos.run(Chaos(rescale_after=50, rescale_to=4, kill_after=100))
    assert (asked, chaos.kills) == ([4], 1)
    kinds = [incident.kind for incident in chaos.story.incidents]
    assert kinds == ["rescaled", "killed", "counts"]


def test_a_rescaling_that_does_not_end_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos_module, "_rescale", lambda progress, parallelism: Future())
    chaos = supervisor(tmp_path, "time.sleep(0 if life == 2 else 60)")
    chaos.run(Chaos(rescale_after=50, rescale_to=4, kill_after=50, kill_at_last=100))
    assert chaos.kills == 1


@pytest.mark.parametrize(
    "command",
    [["-m", "examples.orders"], ["holdfast", "run", "--master", "x", "-m", "examples.orders"]],
)
def test_the_program_is_started_again_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", *command, "--chaos", "--events", "9"])
    monkeypatch.setattr(sys, "argv", ["orders", "--chaos", "--events", "9"])
    assert this_program(["--fail-at", "3"]) == [sys.executable, *command, "--fail-at", "3"]


def test_a_program_is_not_killed_before_its_time(tmp_path: Path) -> None:
    chaos = supervisor(tmp_path, "")
    chaos.run(Chaos(kill_after=101))
    assert chaos.kills == 0
    assert (tmp_path / "lives").read_text() == "x"


def test_a_program_that_fails_is_told_of_with_its_log(tmp_path: Path) -> None:
    chaos = supervisor(tmp_path, "sys.exit('no space left')")
    with pytest.raises(DriverFailed, match=r"code 1:\nno space left"):
        chaos.run(Chaos())


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """The supervisor as a process, interrupted while its program runs."""
    (tmp_path / "driver.py").write_text(textwrap.dedent(DRIVER.format(end="time.sleep(60)")))
    main = f"""
        import sys
        from pathlib import Path
        from examples.orders.chaos import Chaos, Supervisor
        from tests.examples.orders.test_chaos import Recording
        command = [sys.executable, {str(tmp_path / "driver.py")!r}, {str(tmp_path / "lives")!r}]
        try:
            Supervisor(command, Path({str(tmp_path / "log")!r}), Recording()).run(Chaos())
        except KeyboardInterrupt:
            sys.exit(130)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(main)])
    deadline = time.monotonic() + 600
    while not (tmp_path / "lives").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 130
    assert "KeyboardInterrupt" in (tmp_path / "log").read_text()


PROGRESS = Progress(
    "RUNNING",
    events=12_000,
    rate=1499.6,
    orders={"created": 10, "paid": 20, "shipped": 0, "delivered": 2000, "cancelled": 5},
    low_stock=3,
    duplicates=7,
    watermark=1_767_258_000_000,
    checkpoints=(Checkpoint(4, "COMPLETED", 120, 204_800),),
    incidents=(Incident(0.0, "continues from checkpoint 3"),),
    page="http://127.0.0.1:8081/#/jobs/1",
)


def test_the_picture_has_everything() -> None:
    text = "\n".join(render(PROGRESS))
    for part in (
        "1,500 events/s",
        "event time  2026-01-01 09:00",
        "delivered      2,000  ████████████████████████████████████████",
        "low stock          3",
        "checkpoint 4 completed (120 ms, 200 kB)",
        "page        http://127.0.0.1:8081/#/jobs/1",
        "continues from checkpoint 3",
    ):
        assert part in text


def test_a_terminal_is_drawn_over() -> None:
    stream = io.StringIO()
    view = TerminalView(stream)
    view.update(PROGRESS)
    first = stream.getvalue()
    view.update(PROGRESS)
    lines = first.count("\n")
    assert stream.getvalue().removeprefix(first).startswith(f"\x1b[{lines}F")


def test_plain_lines_tell_everything_once() -> None:
    now = 0.0
    stream = io.StringIO()
    view = LineView(stream, lambda: now)
    for _ in range(5):
        view.update(PROGRESS)
        now += 10
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[3].startswith("running: 1,500 events/s; 10 created, 20 paid")
    view.update(msgspec.structs.replace(PROGRESS, rate=100.0))
    assert len(stream.getvalue().splitlines()) == 5


def test_a_frame_fits_into_a_small_terminal() -> None:
    much = msgspec.structs.replace(
        PROGRESS,
        note="x" * 200,
        incidents=tuple(Incident(0.0, "y" * 200) for _ in range(20)),
        checkpoints=tuple(Checkpoint(n, "COMPLETED", 10, 10) for n in range(20)),
    )
    frame = render(much)
    assert max(map(len, frame)) < 80
    assert len(frame) < 24


class Acted:
    """A story in which a test tells the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.story = Story(lambda: self.now)

    def tell(self, status: str, rate: float, orders: int, **rest: Any) -> Progress:
        self.now += 1
        told = Progress(status, rate=rate, orders={"paid": orders}, **rest)
        return self.story.tell(told)


@pytest.fixture
def acted() -> Acted:
    """A job that fails, is rescaled, and whose driver is killed."""
    acted = Acted()
    acted.story.begin(71)
    acted.tell("RUNNING", 900.0, 10, checkpoints=(Checkpoint(1, "COMPLETED", 500, 10, 1001.0),))
    acted.tell("RESTARTING", 400.0, 0, incidents=(Incident(1001.5, "failed: <oops>", "failed"),))
    acted.tell("RUNNING", 900.0, 12, subtasks=2)
    acted.story.happened("rescaled from 2 to 4", "rescaled")
    acted.story.end()
    acted.story.happened("kill -9", "killed")
    acted.story.begin(72)
    acted.story.now()
    return acted


def test_what_is_shown_never_falls_to_zero(acted: Acted) -> None:
    shown = acted.story.now()
    assert (shown.status, shown.total, shown.note) == ("STARTING", 12, "starting Spark again … 0 s")
    shown = acted.tell("RUNNING", 0.0, 0)
    assert (shown.total, shown.note) == (12, "loading the state of the checkpoint …")
    shown = acted.tell("RUNNING", 0.0, 11)
    assert (shown.total, shown.note) == (11, "no event at the moment")
    assert shown.incidents[-1].text == "counts on from 11 orders"
    shown = acted.tell("RUNNING", 800.0, 13)
    assert (shown.total, shown.note) == (13, "")
    assert not any("0 events/s" in line for line in render(shown) if "800" not in line)
    shown = acted.tell("FINISHED", 0.0, 13)
    assert render(shown)[1].split() == ["FINISHED", "every", "event", "is", "read"]


def test_the_timeline_has_everything_that_happened(acted: Acted) -> None:
    acted.tell("RUNNING", 800.0, 13)
    svg = ElementTree.fromstring(draw(acted.story))
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"✕", "⇄", "☠", "process 71", "process 72", "events/s"} <= set(texts)
    titles = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert "checkpoint 1 completed, 500 ms" in titles
    # a rate is drawn for each time that the job ran
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}polygon"))) == 3
    text = page(acted.story)
    assert "1 failure, 1 kill of the driver and 1 change of parallelism" in text
    assert "failed: &lt;oops&gt;" in text


def test_a_timeline_of_nothing_can_be_drawn() -> None:
    ElementTree.fromstring(draw(Story()))


def test_the_timeline_is_in_the_directory_of_the_job(acted: Acted, tmp_path: Path) -> None:
    assert write_page(acted.story, tmp_path) == tmp_path / "timeline.html"
    elsewhere = write_page(acted.story, None)
    assert elsewhere.read_text() == (tmp_path / "timeline.html").read_text()
    elsewhere.unlink()
