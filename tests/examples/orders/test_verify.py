"""The proof notices what is wrong: every kind of difference, in every output."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import examples.orders.__main__ as program
from examples.orders.faults import SimulatedFailure
from examples.orders.job import JobSettings
from examples.orders.reference import expect, purchases
from examples.orders.shop import all_deliveries, deliveries
from examples.orders.verify import Check, table, verify
from holdfast.testing import LocalExecutor
from tests.examples.orders.running import STOCK, job


def options(directory: Path) -> list[str]:
    return (
        "--verify --disorder --backend hashmap --parallelism 2 --duplicates 0.2 --lateness 0.1 "
        f"--events 600 --seed 3 --initial-stock {STOCK} --directory {directory}"
    ).split()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> JobSettings:
    """A job that has come to its end, on the settings of a command line."""
    directory = tmp_path_factory.mktemp("orders")
    chosen = program.settings_of(program.parse(options(directory)), directory)
    with LocalExecutor(job(chosen), quota=150) as run:
        run.run_to_end()
    return chosen


@pytest.fixture
def output(done: JobSettings, tmp_path: Path) -> Path:
    """A copy of the outputs, to be spoiled."""
    return Path(shutil.copytree(done.output, tmp_path / "output"))


def checks(chosen: JobSettings, output: Path) -> dict[str, Check]:
    found = verify(chosen.shop, output, initial_stock=STOCK, subtasks=2)
    return {check.output: check for check in found}


def change(directory: Path, spoil: Callable[[list[Any]], None]) -> None:
    """Change the rows of a file that has some; of batches, those of the first."""
    file = next(file for file in sorted(directory.glob("[!.]*")) if file.stat().st_size)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    spoil(rows[0] if isinstance(rows[0], list) else rows)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_job_that_went_well_passes(done: JobSettings) -> None:
    assert all(check.passed for check in checks(done, done.output).values())


OUTPUTS = {
    "statuses": "statuses",
    "rejected": "rejected steps",
    "statistics": "statistics",
    "stock": "stock changes",
    "low_stock": "low stock",
    "batches": "batches",
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_row_that_is_lost_is_noticed(name: str, done: JobSettings, output: Path) -> None:
    change(output / name, lambda rows: rows.pop())
    assert checks(done, output)[OUTPUTS[name]].lost == 1


@pytest.mark.parametrize("name", [*OUTPUTS, "late"])
def test_a_row_that_is_there_twice_is_noticed(name: str, done: JobSettings, output: Path) -> None:
    change(output / name, lambda rows: rows.append(rows[0]))
    assert checks(done, output)[{**OUTPUTS, "late": "late orders"}[name]].twice == 1


def test_a_late_order_that_is_lost_is_missed_in_the_statistics(
    done: JobSettings, output: Path
) -> None:
    change(output / "late", lambda rows: rows.pop())
    assert not checks(done, output)["statistics"].passed


def test_an_order_that_was_in_time_is_not_late(done: JobSettings, output: Path) -> None:
    expected = expect(all_deliveries(done.shop))
    order = next(o for o in expected.created.values() if o.order_id not in expected.behind)
    row = {"order_id": order.order_id, "user_id": order.user_id, "timestamp": order.timestamp}
    change(output / "late", lambda rows: rows.append({**row, "total": str(order.total)}))
    assert checks(done, output)["late orders"].wrong == 1


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("statuses", "status", "lost"),
        ("statistics", "total", "0.01"),
        ("rejected", "reason", "no reason"),
        ("batches", "user_id", "nobody"),
    ],
)
def test_a_wrong_value_is_noticed(
    name: str, field: str, value: str, done: JobSettings, output: Path
) -> None:
    change(output / name, lambda rows: rows[0].update({field: value}))
    check = checks(done, output)[OUTPUTS[name]]
    assert (check.lost, check.wrong) == (1, 1)
    assert check.example.startswith("lost: ")


def test_rows_of_parquet_files_are_compared(done: JobSettings, output: Path) -> None:
    file = next((output / "statuses_parquet").glob("*.parquet"))
    table = pq.read_table(file)
    pq.write_table(pa.concat_tables([table.slice(1), table.slice(1, 1)]), file)
    check = checks(done, output)["statuses in Parquet"]
    assert (check.lost, check.twice) == (1, 1)


def test_a_stock_that_does_not_follow_is_noticed(done: JobSettings, output: Path) -> None:
    change(output / "stock", lambda rows: rows[0].update(stock=rows[0]["stock"] + 1))
    assert not checks(done, output)["low stock"].passed


def test_a_warning_too_many_is_noticed(done: JobSettings, output: Path) -> None:
    change(output / "low_stock", lambda rows: rows[0].update(number=rows[0]["number"] + 1))
    assert not checks(done, output)["low stock"].passed


def test_batches_that_are_not_full_are_noticed(done: JobSettings, output: Path) -> None:
    file = next((output / "batches").iterdir())
    batch, *others = map(json.loads, file.read_text().splitlines())
    batches = [*(batch[part::3] for part in range(3)), *others]
    file.write_text("".join(f"{json.dumps(batch)}\n" for batch in batches))
    assert checks(done, output)["batches"].example.startswith("batches of [")


def test_late_orders_are_not_in_the_statistics(done: JobSettings) -> None:
    expected = expect(deliveries(done.shop, 0, 20))
    orders = list(expected.created.values())
    late = {orders[0].order_id}
    all_of_them = sum(row["orders"] for row in purchases(orders, ()))
    assert sum(row["orders"] for row in purchases(orders, late)) == all_of_them - 1


def test_the_table_says_what_differs() -> None:
    good, bad = Check("stock", 10, 10), Check("batches", 1200, 1199, lost=1, example="lost: o7")
    lines = table([good, bad]).splitlines()
    assert lines[2].split() == ["stock", "10", "10", "0", "0", "0", "ok"]
    assert lines[3].split() == ["batches", "1,200", "1,199", "1", "0", "0", "DIFFERS"]
    assert lines[4] == "  batches: lost: o7"


@pytest.mark.parametrize("planted", [False, True])
def test_the_exit_code_tells_whether_anything_differs(
    planted: bool,
    output: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command as it is, but for Spark: the outputs are there already."""
    if planted:
        change(output / "statuses", lambda rows: rows.pop())
    monkeypatch.setattr(program, "run", lambda settings, tell: None)
    assert program.main(options(output.parent)) == int(planted)
    said = capsys.readouterr().out
    assert ("nothing lost, nothing twice" in said) is not planted
    assert ("DIFFERS" in said) is planted


@pytest.mark.parametrize("reached", [False, True])
def test_a_fault_that_never_happened_is_told(
    reached: bool,
    output: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command as it is, but for Spark: the outputs are there already."""

    def run(settings: JobSettings, tell: object) -> None:
        fault = settings.pipeline.fault
        assert fault is not None
        with pytest.raises(SimulatedFailure) if reached else nullcontext():
            for event in islice(all_deliveries(settings.shop), 7 if reached else 6):
                fault.map(event)

    monkeypatch.setattr(program, "run", run)
    code = program.main([*options(output.parent), "--fail-at", "7"])
    assert code == (0 if reached else 2)
    assert ("--fail-at 7 was never reached" in capsys.readouterr().err) is not reached


def test_a_rescaled_job_may_have_an_incomplete_batch_of_each_subtask(done: JobSettings) -> None:
    found = verify(done.shop, done.output, initial_stock=STOCK, subtasks=1)
    assert [check.output for check in found if not check.passed] == ["batches"]


def test_settings_say_what_the_command_line_says(tmp_path: Path) -> None:
    plain = program.settings_of(program.parse([]), tmp_path)
    assert plain == JobSettings(tmp_path)
    assert (plain.backend, plain.checkpoint_interval) == ("rocksdb", 30_000)
    assert (plain.restarts, plain.restart_delay) == (5, 30_000)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--chaos", "need --events"),
        ("--source files", "needs --input"),
        ("--verify --events 10 --sink parquet", "read the outputs of --sink files"),
        ("--sink delta", "No release of it is for Spark 4.3 yet"),
    ],
)
def test_what_cannot_be_is_refused(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        program.parse(line.split())
    assert end.value.code == 2
    assert message in capsys.readouterr().err
