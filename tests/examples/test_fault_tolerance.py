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


#: What a subtask does: elements that it buffers (+), that it sends off (!), that it has after a
#: restart (<). Subtask 0 may have taken a14 before the other one fails, or not.
BUFFERED = {
    0: """
        +a2 +a4 +a6 +a8 +a10 !a2 !a4 !a6 !a8 !a10 +a12 +a14?
        <a12
        +a14 +a16 +a18 +a20 !a12 !a14 !a16 !a18 !a20
    """,
    1: """
        +a1 +a3 +a5 +a7 +a9 !a1 !a3 !a5 !a7 !a9 +a11 +a13
        <a11
        +a13 +a15 +a17 +a19 !a11 !a13 !a15 !a17 !a19
    """,
}


def shortened(line: str) -> str | None:
    """A line of the sink's log in the words of ``BUFFERED``."""
    for pattern, form in (
        (r"buffer subtask: \d, element: (\w+), size: \d", r"+\1"),
        (r"sink subtask: \d, element: (\w+)", r"!\1"),
        (r"restore subtask: \d, element: (\w+)", r"<\1"),
    ):
        found = re.fullmatch(pattern, line)
        if found:
            return found.expand(form)
    return None


@pytest.mark.spark
def test_buffering_sink(lines_of: Callable[[str], list[str]], engine: str) -> None:
    *timed, verdict = lines_of("buffering_sink")
    lines = [line.partition(" ")[2] for line in timed]
    for subtask, expected in BUFFERED.items():
        own = [line for line in lines if f"subtask: {subtask}," in line]
        short = " ".join(word for line in own if (word := shortened(line)))
        forms = [" ".join(expected.replace("+a14?", maybe).split()) for maybe in ("+a14", "")]
        assert short in forms
        _check_snapshots(own)
    # The size is that of the buffer, counted on over checkpoints and the restart.
    sizes = [line.split(", ")[1:] for line in lines if line.startswith("buffer subtask: 1,")]
    assert [int(size[-1]) for _, size in sizes] == [1, 2, 3, 4, 5, 1, 2, 2, 3, 4, 5]
    _check_checkpoints(lines)
    assert verdict == "every word was sent off once, in batches of five"


def _check_snapshots(own: list[str]) -> None:
    """Each snapshot of a subtask has what is in its buffer at that time."""
    buffered: list[str] = []
    snapshots: dict[str, list[str]] = {}
    before = ""
    for line in own:
        kind = line.split()[0]
        (element,) = re.findall(r"element: (\w+)", line)
        if kind == "snapshot":
            checkpoint = line.split(", ")[1]
            snapshots.setdefault(checkpoint, []).append(element)
            assert snapshots[checkpoint] == buffered[: len(snapshots[checkpoint])]
        elif kind == "sink":
            buffered.remove(element)
        else:
            buffered = [] if kind == "restore" != before else buffered
            buffered.append(element)
        before = kind
    assert snapshots


def _check_checkpoints(lines: list[str]) -> None:
    """Snapshots lie between the two lines of their checkpoint, and have its timestamp."""
    completed = [line.split()[2] for line in lines if line.startswith("completed checkpoint")]
    assert completed == sorted(completed, key=int)
    for checkpoint in completed:
        begin, end = (
            next(n for n, line in enumerate(lines) if line.startswith(f"{word} {checkpoint} "))
            for word in ("triggering checkpoint", "completed checkpoint")
        )
        own = [n for n, line in enumerate(lines) if f" checkpoint: {checkpoint}," in line]
        assert all(begin < n < end for n in own)
        timestamp = lines[begin].split()[4]
        assert {lines[n].split(", ")[2] for n in own} <= {f"timestamp: {timestamp}"}


@pytest.mark.spark
def test_counter_source(lines_of: Callable[[str], list[str]], engine: str) -> None:
    *attempts, verdict = lines_of("counter_source")
    assert verdict == "600 numbers, each seen once from each of 2 sources"
    found = [re.fullmatch(r"attempt \d goes on from offsets \[(\d+), (\d+)\]", a) for a in attempts]
    first, second = (sum(map(int, match.groups())) for match in found if match)
    assert 0 < first < second


@pytest.mark.spark
def test_state_source_to_sink(lines_of: Callable[[str], list[str]], engine: str) -> None:
    lines = lines_of("state_source_to_sink")
    verdict = re.compile(r"(chained|keyed): 30 records, \d+ checkpoints, nothing lost on the way")
    ends = [n for n, line in enumerate(lines) if verdict.fullmatch(line)]
    assert [lines[n].split(":")[0] for n in ends] == ["chained", "keyed"]
    chained, keyed = lines[: ends[0]], lines[ends[0] + 1 : ends[1]]
    # In a chain the last function comes first.
    for call in ("initialize_state", "snapshot_state 1 end", "notify_checkpoint_complete 1"):
        assert _order(chained, call) == ["StateSink", "StateSource"]
    # Over a shuffle, the barrier comes from the source to the sink.
    assert _order(keyed, "snapshot_state 1 end") == ["StateSource", "StateSink"]
    for log in (chained, keyed):
        # The next records come when a checkpoint that contains the last ones is complete.
        saved = next(
            line for line in log if re.search(r"StateSink snapshot_\w+ \d+ end.* 5$", line)
        )
        complete = f"StateSource notify_checkpoint_complete {saved.split()[2]}"
        order = [saved, complete, "StateSource send:6", "StateSink recv:6"]
        assert sorted(order, key=log.index) == order
        # After the failure: again from the last completed checkpoint on. It has 15 records, or one
        # or two more if it came in the middle of the next five.
        restart = len(log) - log[::-1].index("StateSource initialize_state")
        sent = [line for line in log[restart:] if line.startswith("StateSource send")]
        first = int(sent[0].removeprefix("StateSource send:"))
        assert 16 <= first <= 18
        for counted in (f"sent {first - 1}", f"received {first - 1}"):
            assert any(line.endswith(f" end, {counted}") for line in log[:restart])


def _order(log: list[str], what: str) -> list[str]:
    """Who was called, in the first attempt."""
    return [line.split()[0] for line in log if what in line][:2]


@pytest.mark.spark
def test_fault_simulation(lines_of: Callable[[str], list[str]], engine: str) -> None:
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
    assert wrong([*sunk, *log[1:]]) == "only 4 checkpoints were completed before the failure"
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
