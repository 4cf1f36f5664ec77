"""The programs about checkpoints, line by line: what they logged, and that they notice a loss."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def lines_of(
    spark: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Runs an example in this process; gives what it printed."""

    def run(name: str) -> list[str]:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path)])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


#: What a subtask does: elements that it buffers (+), that it writes into a checkpoint (:), that it
#: sends off (!), that it has after a restart (<).
BUFFERED = {
    0: """
        +a2 1:a2
        +a4 +a6 2:a2 2:a4 2:a6
        +a8 3:a2 3:a4 3:a6 3:a8
        +a10 !a2 !a4 !a6 !a8 !a10
        +a12 5:a12
        +a14 6:a12 6:a14
        <a12
        +a14 7:a12 7:a14
        +a16 +a18 +a20 !a12 !a14 !a16 !a18 !a20
    """,
    1: """
        +a1 1:a1
        +a3 +a5 +a7 2:a1 2:a3 2:a5 2:a7
        3:a1 3:a3 3:a5 3:a7
        +a9 !a1 !a3 !a5 !a7 !a9 +a11 4:a11
        5:a11
        +a13
        <a11
        +a13 +a15 7:a11 7:a13 7:a15
        +a17 +a19 !a11 !a13 !a15 !a17 !a19
    """,
}


def shortened(line: str) -> str | None:
    """A line of the sink's log in the words of ``BUFFERED``."""
    for pattern, form in (
        (r"buffer subtask: \d, element: (\w+), size: \d", r"+\1"),
        (r"snapshot subtask: \d, checkpoint: (\d+), timestamp: \d{13}, element: (\w+)", r"\1:\2"),
        (r"sink subtask: \d, element: (\w+)", r"!\1"),
        (r"restore subtask: \d, element: (\w+)", r"<\1"),
    ):
        found = re.fullmatch(pattern, line)
        if found:
            return found.expand(form)
    return None


@pytest.mark.spark
def test_buffering_sink(lines_of: Callable[[str], list[str]]) -> None:
    *timed, verdict = lines_of("buffering_sink")
    lines = [line.partition(" ")[2] for line in timed]
    for subtask, expected in BUFFERED.items():
        own = [line for line in lines if f"subtask: {subtask}," in line]
        assert [shortened(line) for line in own] == expected.split()
    # The size is that of the buffer, counted on over checkpoints and the restart.
    sizes = [line.split(", ")[1:] for line in lines if line.startswith("buffer subtask: 1,")]
    assert [int(size[-1]) for _, size in sizes] == [1, 2, 3, 4, 5, 1, 2, 2, 3, 4, 5]
    _check_checkpoints(lines)
    assert verdict == "every word was sent off once, in batches of five"


def _check_checkpoints(lines: list[str]) -> None:
    """Snapshots lie between the two lines of their checkpoint, and have its timestamp."""
    for checkpoint in (1, 2, 3, 4, 5, 7):
        begin, end = (
            next(n for n, line in enumerate(lines) if line.startswith(f"{word} {checkpoint} "))
            for word in ("triggering checkpoint", "completed checkpoint")
        )
        own = [n for n, line in enumerate(lines) if f" checkpoint: {checkpoint}," in line]
        assert begin < min(own) <= max(own) < end
        timestamp = lines[begin].split()[4]
        assert {lines[n].split(", ")[2] for n in own} == {f"timestamp: {timestamp}"}
    assert not any("completed checkpoint 6" in line for line in lines), "its epoch failed"


@pytest.mark.spark
def test_counter_source(lines_of: Callable[[str], list[str]]) -> None:
    assert lines_of("counter_source") == [
        "attempt 1 goes on from offsets [200, 200]",
        "attempt 2 goes on from offsets [300, 300]",
        "600 numbers, each seen once from each of 2 sources",
    ]


@pytest.mark.spark
def test_state_source_to_sink(lines_of: Callable[[str], list[str]]) -> None:
    lines = lines_of("state_source_to_sink")
    verdict = re.compile(r"(chained|keyed): 30 records, \d checkpoints, nothing lost on the way")
    ends = [n for n, line in enumerate(lines) if verdict.fullmatch(line)]
    assert [lines[n].split(":")[0] for n in ends] == ["chained", "keyed"]
    chained, keyed = lines[: ends[0]], lines[ends[0] + 1 : ends[1]]
    for log, first, second in (
        (chained, "StateSink", "StateSource"),
        (keyed, "StateSource", "StateSink"),
    ):
        # In a chain the last function comes first; over a shuffle, levels come in their order.
        assert _order(log, "initialize_state") == [first, second]
        assert _order(log, "notify_checkpoint_complete 1") == [first, second]
        assert _order(log, "snapshot_state 1 end") == [first, second]
        # What was sent during a snapshot is received after it, in the next checkpoint.
        snapshot = log.index("StateSink snapshot_state 1 end, received 5")
        assert log.index("StateSource send:6") < log.index("StateSink recv:6") > snapshot
        # After the failure: again from the last completed checkpoint on.
        restart = len(log) - log[::-1].index("StateSource initialize_state")
        assert "StateSource send:16" in log[restart : restart + 3]


def _order(log: list[str], what: str) -> list[str]:
    """Who was called, in the first attempt."""
    return [line.split()[0] for line in log if what in line][:2]


@pytest.mark.spark
def test_fault_simulation(lines_of: Callable[[str], list[str]]) -> None:
    assert lines_of("fault_simulation") == [
        "attempt 0 begins with 0 records in state",
        "attempt 1 begins with 90 records in state",
        "attempt 2 begins with 180 records in state",
        "attempt 3 begins with 270 records in state",
        "300 records went in, 300 are in state",
        "gave up: simulated failure at record 100",
        "started again with 180 records in state",
        "300 records went in, 300 are in state",
    ]


def example(name: str) -> dict[str, Callable[..., object]]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_the_buffering_sink_notices_what_is_wrong() -> None:
    wrong = example("buffering_sink")["wrong"]
    sunk = [f"sink subtask: 0, element: a{n}" for n in range(1, 21)]
    log = [f"completed checkpoint {n} for job" for n in range(1, 6)]
    log += [f"snapshot subtask: 0, checkpoint: 5, element: {word}" for word in ("a11", "a12")]
    log += [f"restore subtask: 0, element: {word}" for word in ("a11", "a12")]
    assert wrong([*sunk, *log]) is None
    assert "sent off" in str(wrong([*sunk[1:], *log]))
    assert "sent off" in str(wrong([*sunk, sunk[0], *log]))
    assert wrong([*sunk, *log[1:]]) == "only 4 checkpoints were completed"
    assert "restored ['a11'], saved ['a11', 'a12']" in str(wrong([*sunk, *log[:-1]]))


def test_state_source_to_sink_notices_what_is_wrong() -> None:
    complete = example("state_source_to_sink")["complete"]
    log = [
        "StateSource snapshot_state 1 end, sent 5",
        "StateSink snapshot_state 1 end, received 5",
        "StateSink notify_checkpoint_complete 1",
        "StateSource notify_checkpoint_complete 1",
    ]
    assert complete(log) == [1]
    for broken in (
        log[1:],
        [log[0], *log[2:], log[1]],
        [log[0], log[1].replace("5", "4"), *log[2:]],
    ):
        with pytest.raises(SystemExit, match="checkpoint 1 is not one"):
            complete(broken)


def test_the_fault_simulation_notices_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    check = example("fault_simulation")["check"]
    check({n: n for n in range(181, 301)}, "job")
    assert capsys.readouterr().out == "300 records went in, 300 are in state\n"
    with pytest.raises(SystemExit, match=r"job: records were lost or counted twice: \{300: 301\}"):
        check({299: 299, 300: 301}, "job")
    with pytest.raises(SystemExit, match="lost"):
        check({1: 1}, "job")
