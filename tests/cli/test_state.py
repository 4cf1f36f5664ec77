"""``holdfast state``, over savepoints that were made for it."""

from __future__ import annotations

import csv
import datetime
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.values import json_of, text_of
from holdfast.common import Row, Time, Types
from holdfast.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.filesystem import configure
from holdfast.printable import printable_lines
from holdfast.savepoint import KeyedState, OperatorState, SavepointWriter, Timers
from tests.cli.conftest import Holdfast
from tests.conftest import S3

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints" / "0.1.0" / "golden" / "chk-4"
STOCK = ValueStateDescriptor("stock", Types.LONG())
PRICES = MapStateDescriptor("prices", Types.STRING(), Types.BIG_DEC())


def made(path: Path, stock: dict[str, int], *pending: str) -> str:
    lasting = ValueStateDescriptor("seen", Types.STRING())
    lasting.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    return (
        SavepointWriter(job_name="shop")
        .with_operator(
            "inventory",
            KeyedState(STOCK, stock),
            KeyedState(PRICES, {"boots": {"eur": Decimal("79.90")}}),
            KeyedState(lasting, {"boots": "today"}),
            OperatorState(ListStateDescriptor("pending", Types.STRING()), list(pending)),
            Timers([("boots", 1000), ("boots", 2000)]),
        )
        .with_operator("by place", KeyedState(STOCK, {("DE", 7): 1, ("NO", 8): 2}))
        .write(path)
    )


def test_names_and_values_do_not_control_the_terminal(holdfast: Holdfast, tmp_path: Path) -> None:
    forgery = "stock\nforged\x1b[2J\u202e"
    names = ValueStateDescriptor(forgery, Types.STRING())
    before, after = (
        SavepointWriter(job_name=forgery)
        .with_operator(forgery, KeyedState(names, {forgery: value}))
        .write(tmp_path / value)
        for value in ("before", "after")
    )
    for command in (
        ("state", "list", before),
        ("state", "show", before, forgery, forgery),
        ("state", "show", before, forgery, "no such state"),
        ("state", "diff", before, after),
        ("checkpoints", "list", tmp_path),
        ("checkpoints", "show", before),
    ):
        output = holdfast(*command).output
        assert "forged" in output, command
        assert output == printable_lines(output), command
        assert not [line for line in output.splitlines() if line.startswith("forged")], command


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("m") / "monday", {"boots": 5, "kettles": 2}, "a", "b")


@pytest.fixture(scope="module")
def tuesday(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("t") / "tuesday", {"boots": 4, "hats": 9}, "b", "c")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_list(holdfast: Holdfast, monday: str) -> None:
    listed = rows(holdfast("state", "list", monday).stdout)
    assert listed[0] == ["OPERATOR", "STATE", "KIND", "KEPT", "BY", "ENTRIES", "SIZE", "TYPE"]
    assert ["inventory", "stock", "ValueState", "key", "2"] in [row[:5] for row in listed]
    assert ["inventory", "pending", "split", "operator", "2"] in [row[:5] for row in listed]
    assert any("(event time timers)" in " ".join(row) for row in listed)
    assert any(row[1] == "seen" and row[-1] == "time-to-live" for row in listed)


def test_list_as_json(holdfast: Holdfast, monday: str) -> None:
    listed = json.loads(holdfast("state", "list", "--json", monday).stdout)
    (stock,) = (one for one in listed if one["state"] == "stock" and one["operator"] != "by place")
    assert stock.pop("bytes") > 0
    assert stock == {
        "operator": "inventory",
        "name": "inventory",
        "state": "stock",
        "internal": False,
        "kind": "ValueState",
        "kept_by": "key",
        "key_type": "no type",
        "type": "long",
        "expires": False,
        "pickled": False,
        "entries": 2,
    }


def test_list_of_the_golden_checkpoint_has_every_state(holdfast: Holdfast) -> None:
    listed = json.loads(holdfast("state", "list", "--json", GOLDEN).stdout)
    shown = json.loads(holdfast("checkpoints", "show", "--json", GOLDEN).stdout)
    assert len(listed) == sum(len(one["states"]) for one in shown["operators"].values())


def test_show(holdfast: Holdfast, monday: str) -> None:
    done = holdfast("state", "show", monday, "inventory", "stock")
    assert sorted(rows(done.stdout)[1:]) == [["boots", "5"], ["kettles", "2"]]
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("operator", "key", "value"), [("inventory", "kettles", 2), ("by place", '["NO", 8]', 2)]
)
def test_show_one_key(holdfast: Holdfast, monday: str, operator: str, key: str, value: int) -> None:
    arguments = ("--json", "--key", key, monday, operator, "stock")
    (row,) = json.loads(holdfast("state", "show", *arguments).stdout)
    assert row["value"] == value


def test_show_as_much_as_is_asked_for(holdfast: Holdfast, monday: str) -> None:
    done = holdfast("state", "show", "--limit", "1", monday, "inventory", "stock")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.startswith("there are more than 1; --limit shows more")


def test_show_timers_and_operator_state(holdfast: Holdfast, monday: str) -> None:
    timers = rows(holdfast("state", "show", "--timers", monday, "inventory").stdout)
    assert [row[2] for row in timers[1:]] == ["1000", "2000"]
    pending = json.loads(holdfast("state", "show", "--json", monday, "inventory", "pending").stdout)
    assert [row["value"] for row in pending] == ["a", "b"]
    none = holdfast("state", "show", "--windows", monday, "inventory")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no entries\n")


def test_export_to_parquet_keeps_types(holdfast: Holdfast, monday: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "prices.parquet"
    done = holdfast("state", "export", monday, "inventory", "prices", "-o", file)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"1 row written to {file}\n"
    read = pq.read_table(file)
    assert read.schema.field("value").type == pa.map_(pa.string(), pa.decimal128(38, 18))
    assert read.to_pylist() == [{"key": "boots", "value": [("eur", Decimal("79.9"))]}]
    assert [path.name for path in file.parent.iterdir()] == ["prices.parquet"]


def test_export_to_lines_of_json_and_csv(holdfast: Holdfast, monday: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.jsonl"
    assert holdfast("state", "export", monday, "inventory", "prices", "-o", file).exit_code == 0
    assert json.loads(file.read_text()) == {"key": "boots", "value": {"eur": "79.90"}}
    piped = holdfast("state", "export", monday, "by place", "stock", "--format", "csv", "-o", "-")
    assert piped.exit_code == 0, piped.output
    cells = list(csv.reader(io.StringIO(piped.stdout)))
    assert cells[0] == ["key", "value"]
    assert sorted(cells[1:]) == [['["DE", 7]', "1"], ['["NO", 8]', "2"]]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_all_that_was_ever_saved_can_be_exported(
    holdfast: Holdfast, tmp_path: Path, kind: str
) -> None:
    listed = json.loads(holdfast("state", "list", "--json", GOLDEN).stdout)
    states = [one for one in listed if one["operator"] in ("texts", "modes")]
    assert len(states) > 40
    for one in states:
        file = tmp_path / f"x.{kind}"
        done = holdfast("state", "export", GOLDEN, one["operator"], one["state"], "-o", file)
        assert done.exit_code == 0, done.output
        if kind == "parquet":
            assert pq.read_metadata(file).num_rows == one["entries"]
        else:
            lines = len(file.read_text().splitlines())
            assert lines == one["entries"] + (kind == "csv")


def test_diff(holdfast: Holdfast, monday: str, tuesday: str) -> None:
    done = holdfast("state", "diff", "--exit-code", monday, tuesday)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "operator 'inventory', state 'pending': 1 added, 1 removed",
        "  - a",
        "  + c",
        "operator 'inventory', state 'stock': 1 added, 1 removed, 1 changed",
        "  ~ boots: 5 -> 4",
        "  + hats: 9",
        "  - kettles: 2",
    ]


def test_diff_of_one_state(holdfast: Holdfast, monday: str, tuesday: str) -> None:
    chosen = ("--operator", "inventory", "--state", "stock", "--limit", "1", monday, tuesday)
    assert holdfast("state", "diff", *chosen).stdout.splitlines()[1:] == [
        "  ~ boots: 5 -> 4",
        "  and 2 more",
    ]
    (change,) = json.loads(holdfast("state", "diff", "--json", *chosen).stdout)
    assert (change["added"], change["removed"], change["changed"]) == (1, 1, 1)
    assert change["rows"] == [{"key": "boots", "change": "changed", "before": 5, "after": 4}]


def test_no_difference(holdfast: Holdfast, monday: str) -> None:
    done = holdfast("state", "diff", "--exit-code", monday, monday)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "nothing is different\n")
    assert holdfast("state", "diff", "--json", monday, monday).stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["list", "nowhere"], 1, "no file '_metadata'; 'holdfast checkpoints list"),
        (["show", "MONDAY", "inventory"], 2, "name a STATE, or say --windows or --timers"),
        (["show", "MONDAY", "inventory", "stock", "--timers"], 2, "name a STATE, or say"),
        (["show", "MONDAY", "shop", "stock"], 1, "'shop'; there are 'by place' (by place), 'inv"),
        (["show", "MONDAY", "inventory", "x"], 1, "no state 'x'; it has 'pending', 'prices'"),
        (["show", "MONDAY", "inventory", "pending", "--key", "a"], 2, "a list, which has no keys"),
        (["show", "MONDAY", "inventory", "stock", "--kept-by", "window"], 1, "has no state"),
        (["export", "MONDAY", "inventory", "stock", "-o", "x.txt"], 2, "add --format parquet, js"),
        (["export", "MONDAY", "inventory", "stock", "-o", "ftp://x/y.csv"], 2, "no file system"),
        (["diff", "MONDAY", "MONDAY", "--operator", "shop"], 1, "there are 'by place'"),
    ],
)
def test_mistakes(
    holdfast: Holdfast, monday: str, arguments: list[str], code: int, message: str
) -> None:
    given = [monday if part == "MONDAY" else part for part in arguments]
    done = holdfast("state", *given)
    assert done.exit_code == code, done.output
    assert message in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("Error")]) == 1


def test_two_states_of_one_name(holdfast: Holdfast, tmp_path: Path) -> None:
    path = (
        SavepointWriter()
        .with_operator(
            "counts",
            KeyedState(ValueStateDescriptor("n", Types.LONG()), {"a": 1}),
            OperatorState(ListStateDescriptor("n", Types.LONG()), [2]),
        )
        .write(tmp_path / "both")
    )
    done = holdfast("state", "show", path, "counts", "n")
    assert done.exit_code == 2
    assert "add --kept-by key or operator" in done.stderr or "operator or key" in done.stderr
    for kept_by, value in (("key", 1), ("operator", 2)):
        arguments = ("--json", "--kept-by", kept_by, path, "counts", "n")
        (row,) = json.loads(holdfast("state", "show", *arguments).stdout)
        assert row["value"] == value
    assert len(rows(holdfast("state", "list", path).stdout)) == 3


def test_a_failed_export_leaves_no_file(holdfast: Holdfast, tmp_path: Path) -> None:
    many = Decimal("1E+30")
    state = KeyedState(ValueStateDescriptor("amount", Types.BIG_DEC()), {"a": many})
    path = SavepointWriter().with_operator("sums", state).write(tmp_path / "saved")
    target = tmp_path / "out"
    target.mkdir()
    done = holdfast("state", "export", path, "sums", "amount", "-o", target / "x.parquet")
    assert done.exit_code == 1
    assert "cannot be written as parquet" in done.stderr
    assert "jsonl holds every value" in done.stderr
    assert list(target.iterdir()) == []
    done = holdfast("state", "export", path, "sums", "amount", "-o", target / "x.jsonl")
    assert Decimal(json.loads((target / "x.jsonl").read_text())["value"]) == many


def test_to_and_from_s3(holdfast: Holdfast, s3: S3) -> None:
    configure(s3.options)
    state = KeyedState(STOCK, {"boots": 5})
    path = SavepointWriter().with_operator("inventory", state).write(f"{s3.uri}/savepoint")
    configure({})
    settings = [part for key, value in s3.options.items() for part in ("-D", f"{key}={value}")]
    where = (path, "inventory", "stock")
    try:
        target = f"{s3.uri}/stock.jsonl"
        done = holdfast("state", "export", *settings, *where, "-o", target)
        assert (done.exit_code, done.stderr) == (0, f"1 row written to {target}\n")
        assert json.loads(holdfast("state", "show", *settings, "--json", *where).stdout) == [
            {"key": "boots", "value": 5}
        ]
    finally:
        configure({})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("boots", "boots"),
        ("two\nlines", '"two\\nlines"'),
        (b"\x00\xff", "AP8="),
        (Decimal("1.50"), "1.50"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ({1: "a"}, '[[1, "a"]]'),
        (Row(a=1, b=None), '{"a": 1, "b": null}'),
        (Row(1, 2), "[1, 2]"),
        (float("nan"), "null"),
        (1 << 80, "1208925819614629174706176"),
    ],
)
def test_values_as_text(value: object, shown: str) -> None:
    assert text_of(value) == shown


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(_PLAIN)
def test_every_value_is_json(value: object) -> None:
    shown = json_of(value)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert "\n" not in text_of(value)
