"""The supervisor and the view, with a program that takes no time in the place of the job."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from examples.orders.chaos import DriverFailed, Supervisor
from examples.orders.progress import Checkpoint, Incident, Progress
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
        progress = Progress("RUNNING", events=events, checkpoints=done)
        print(msgspec.json.encode(progress).decode(), flush=True)
    {end}
"""


class Recording:
    """A view that keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[Progress, tuple[Incident, ...]]] = []

    def update(self, progress: Progress, earlier: Sequence[Incident] = ()) -> None:
        self.shown.append((progress, tuple(earlier)))

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
    chaos.run(kill_after=100)
    assert chaos.kills == 1
    assert (tmp_path / "lives").read_text() == "xx"
    assert "kill -9 of the driver" in view.shown[-1][1][0].text


def test_a_program_is_not_killed_before_its_time(tmp_path: Path) -> None:
    chaos = supervisor(tmp_path, "")
    chaos.run(kill_after=101)
    assert chaos.kills == 0
    assert (tmp_path / "lives").read_text() == "x"


def test_a_program_that_fails_is_told_of_with_its_log(tmp_path: Path) -> None:
    chaos = supervisor(tmp_path, "sys.exit('no space left')")
    with pytest.raises(DriverFailed, match=r"code 1:\nno space left"):
        chaos.run(kill_after=None)


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """The supervisor as a process, interrupted while its program runs."""
    (tmp_path / "driver.py").write_text(textwrap.dedent(DRIVER.format(end="time.sleep(60)")))
    main = f"""
        import sys
        from pathlib import Path
        from examples.orders.chaos import Supervisor
        from tests.examples.orders.test_chaos import Recording
        command = [sys.executable, {str(tmp_path / "driver.py")!r}, {str(tmp_path / "lives")!r}]
        try:
            Supervisor(command, Path({str(tmp_path / "log")!r}), Recording()).run(None)
        except KeyboardInterrupt:
            sys.exit(130)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(main)])
    deadline = time.monotonic() + 60
    while not (tmp_path / "lives").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
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
    incidents=(Incident(0.0, "goes on from checkpoint 3"),),
)


def test_the_picture_has_everything() -> None:
    text = "\n".join(render(PROGRESS, [Incident(0.0, "kill -9")]))
    for part in (
        "1,500 events/s",
        "event time 2026-01-01 09:00",
        "delivered      2,000  ██████████████████████████████",
        "low stock          3",
        "checkpoint 4 completed (120 ms, 200 kB)",
        "kill -9",
        "goes on from checkpoint 3",
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
    assert len(lines) == 3
    assert lines[2].startswith("running: 1,500 events/s, 10 created, 20 paid")
    view.update(msgspec.structs.replace(PROGRESS, rate=100.0))
    assert len(stream.getvalue().splitlines()) == 4
