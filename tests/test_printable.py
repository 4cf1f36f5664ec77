"""Whatever characters names and errors have: a log record is a line, a terminal only shows them."""

from __future__ import annotations

import io
import logging
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Configuration
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import CheckpointedFunction
from holdfast.plan.explain import explain
from holdfast.plan.mermaid import to_mermaid
from holdfast.plan.svg import to_svg
from holdfast.printable import get_logger, printable, printable_lines
from holdfast.testing import LocalExecutor

ROOT = Path(__file__).parents[1] / "src" / "holdfast"
#: a line break of each kind, a control sequence of a terminal, and what turns the text around
FORGERY = "\n\r\v\f\x1c\x85\u2028\u2029WARNING forged\x1b[2J\x9b2J\u202eabc\u2066"


@given(st.text(st.characters()))
def test_a_text_is_one_line_without_controls(text: str) -> None:
    line = printable(text)
    assert len(line.splitlines()) <= 1
    assert not {"Cc", "Zl", "Zp", "Cs"} & set(map(unicodedata.category, line))
    assert not {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI"} & set(
        map(unicodedata.bidirectional, line)
    )
    assert printable(line) == line


@given(st.text(st.characters()))
def test_lines_stay_lines(text: str) -> None:
    lines = printable_lines(text).split("\n")
    assert [line.replace("\t", "\\t") for line in lines] == list(map(printable, text.split("\n")))


@pytest.mark.parametrize(
    "text",
    ["", "orders", "Aufträge", "订单\u3000一", "👩\u200d🚀", "می\u200cخواهم", "a\xa0b", "C:\\n"],
)
def test_names_are_left_alone(text: str) -> None:
    assert printable(text) == text


class Failing(MapFunction, CheckpointedFunction):
    """Cannot be saved."""

    def map(self, value: int) -> int:
        return value

    def initialize_state(self, context: object) -> None:
        pass

    def snapshot_state(self, context: object) -> None:
        raise RuntimeError(FORGERY)


@contextmanager
def written() -> Iterator[io.StringIO]:
    """What a program finds in its log that has configured one."""
    log, root = io.StringIO(), logging.getLogger("holdfast")
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("LINE %(levelname)s %(message)s"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield log
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def job(directory: Path) -> StreamExecutionEnvironment:
    configuration = Configuration(
        {
            "pipeline.name": f"job{FORGERY}",
            "execution.checkpointing.interval": "1h",
            "execution.checkpointing.dir": str(directory),
            "execution.checkpointing.tolerable-failed-checkpoints": "5",
        }
    )
    env = StreamExecutionEnvironment(configuration).set_parallelism(1)
    numbers = env.from_collection([1, 2, 3])
    numbers.map(Failing()).name(f"operator{FORGERY}").uid("failing").print()
    return env


def test_names_and_errors_do_not_forge_lines_of_the_log(tmp_path: Path) -> None:
    with written() as log, LocalExecutor(job(tmp_path), quota=1) as run:
        run.epoch(checkpoint=True)
    lines = log.getvalue().splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("LINE ") for line in lines), lines
    assert any("forged" in line and "triggering checkpoint 1" in line for line in lines)
    assert any("checkpoint 1 of job" in line and "failed: snapshot_state" in line for line in lines)


def test_a_traceback_is_indented() -> None:
    logger = get_logger("holdfast.test_printable")
    with written() as log:
        try:
            raise RuntimeError(FORGERY)
        except RuntimeError:
            logger.warning("it failed: %s", FORGERY, exc_info=True)
    first, *trace = log.getvalue().split("\n")[:-1]
    assert first.startswith("LINE WARNING it failed: \\n")
    assert trace[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line == printable(line) for line in trace)


def test_a_message_that_cannot_be_made_is_left_to_the_handlers() -> None:
    record = logging.LogRecord("holdfast", logging.WARNING, "", 1, "%d and %d", (1,), None)
    assert get_logger("holdfast.test_printable").filter(record)
    assert (record.msg, record.args) == ("%d and %d", (1,))


def test_every_module_has_such_a_logger() -> None:
    others = [
        str(module.relative_to(ROOT))
        for module in ROOT.rglob("*.py")
        if "getLogger(__name__)" in module.read_text()
    ]
    assert others == [], "they must use get_logger of holdfast.printable"


def test_plans_do_not_forge_lines_either(tmp_path: Path) -> None:
    plan = job(tmp_path)._take_plan(None)
    for text in (explain(plan, "resident"), to_mermaid(plan), to_svg(plan)):
        assert "forged" in text
        assert text == printable_lines(text)
        assert not [line for line in text.splitlines() if line.startswith("WARNING")]
