"""``holdfast state``: reads the states of a checkpoint or savepoint, without Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import click
import pyarrow as pa

from holdfast.cli.exports import FORMATS, format_of
from holdfast.cli.images import located, metadata_of
from holdfast.cli.options import examples, json_option, properties_option
from holdfast.cli.text import say, size_of, table
from holdfast.cli.values import json_of, text_of
from holdfast.printable import counted
from holdfast.savepoint import (
    OperatorInfo,
    Savepoint,
    StateChanges,
    StateData,
    StateInfo,
    StateSize,
    compare,
)
from holdfast.savepoint.lookup import find_operator
from holdfast.state.errors import StateTypeError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MARKS: Final = {"added": "+", "removed": "-", "changed": "~"}
#: how a state is kept: by key, by key and window, or by subtask of the operator
_KEPT_BY: Final = ("key", "window", "operator")
#: the file name for standard output
_STDOUT: Final = "-"

_limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="The maximum number of rows of a state.",
)
_trusted_option = click.option(
    "--trusted",
    is_flag=True,
    help="Unpickle pickled values, which can run arbitrary code.",
)


def _state_options(command: _Command) -> _Command:
    """Return the options that select a state of a checkpoint; see `_data`."""
    for option in reversed(
        (
            click.argument("path"),
            click.argument("operator"),
            click.argument("state", required=False),
            click.option(
                "--windows", is_flag=True, help="The contents of its windows, instead of STATE."
            ),
            click.option("--timers", is_flag=True, help="Its timers, instead of STATE."),
            click.option(
                "--kept-by",
                type=click.Choice(list(_KEPT_BY)),
                help="Selects one if several states have that name.",
            ),
            _trusted_option,
            properties_option,
        )
    ):
        command = option(command)
    return command


@click.group("state")
def command() -> None:
    """Read, export and compare state.

    No job, no JVM and none of the job's code is needed, and a running job is not
    affected. 'holdfast checkpoints list' lists checkpoints and savepoints.
    """


@command.command(
    "list",
    epilog=examples(
        "holdfast state list checkpoints/orders/chk-7",
        "holdfast state list --json s3a://bucket/savepoints/savepoint-orders-7-1b2c3d4e",
    ),
)
@click.argument("path")
@json_option
@_trusted_option
@properties_option
def list_states(path: str, as_json: bool, trusted: bool, properties: Mapping[str, str]) -> None:
    """List states: kind, type, entries and size.

    PATH is a directory such as chk-7 or savepoint-orders-7-1b2c3d4e. All files are read to count
    entries. An entry is a key of keyed state, or an element of a list of operator state.
    """
    savepoint = _read(path, properties, trusted)
    listed = list(_listed(savepoint))
    if as_json:
        click.echo(json.dumps(listed, indent=2))
    elif not listed:
        say(f"no operator has a state in {savepoint.path}", err=True)
    else:
        headers = ("OPERATOR", "STATE", "KIND", "KEPT BY", "ENTRIES", "SIZE", "TYPE")
        for line in table(headers, map(_row, listed)):
            say(line)


def _listed(savepoint: Savepoint) -> Iterator[dict[str, Any]]:
    for size in savepoint.sizes():
        operator = savepoint.operators[size.operator]
        alike = _infos_of(operator, size)
        state = alike[0]
        yield {
            "operator": operator.uid,
            "name": operator.name,
            "state": _label(state.name),
            "internal": state.internal,
            "kind": state.kind,
            "kept_by": _kept_by(state),
            "key_type": operator.key_type if state.keyed else None,
            "type": " or ".join(one.type for one in alike),
            "expires": state.expires,
            "pickled": state.pickled,
            "entries": size.entries,
            "bytes": size.bytes,
        }


def _infos_of(operator: OperatorInfo, size: StateSize) -> list[StateInfo]:
    """Return a state as it was written, with one or several types."""
    place = size.state, size.windowed, size.keyed
    return [s for s in operator.states if (s.name, s.windowed, s.keyed) == place]


def _row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    name = f"({entry['state']})" if entry["internal"] else entry["state"]
    noted = ", with a time-to-live" if entry["expires"] else ""
    return (
        entry["operator"],
        name,
        entry["kind"],
        entry["kept_by"],
        entry["entries"],
        size_of(entry["bytes"]),
        entry["type"] + noted,
    )


@command.command(
    "show",
    epilog=examples(
        "holdfast state show checkpoints/orders/chk-7 inventory stock",
        "holdfast state show --key boots checkpoints/orders/chk-7 inventory stock",
        "holdfast state show --timers --limit 5 checkpoints/orders/chk-7 tracking",
        "holdfast state show --json --limit 1000 chk-7 inventory stock | jq '.[].value'",
    ),
)
@_state_options
@click.option("--key", help="Only this key: a string, or JSON of any other key.")
@_limit_option
@json_option
def show(key: str | None, limit: int, as_json: bool, **which: Any) -> None:
    """Show entries of a state.

    OPERATOR is a uid or a name, STATE the name of a state, as 'holdfast state list' has them. Times
    are in milliseconds.
    """
    data = _data(**which)
    found = list(islice(_of_key(data, key), limit + 1))
    if as_json:
        click.echo(json.dumps([_json_row(row) for row in found[:limit]], indent=2))
    else:
        _show(data.column_names, found[:limit])
    if len(found) > limit:
        message = f"there are more than {limit}; --limit shows more, 'holdfast state export' all"
        say(message, err=True)


def _show(names: list[str], rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no entries", err=True)
        return
    cells = ([text_of(cell) for cell in row.values()] for row in rows)
    for line in table([name.upper() for name in names], cells):
        say(line)


def _of_key(data: StateData, key: str | None) -> Iterable[dict[str, Any]]:
    if key is None:
        return data
    if "key" not in data.column_names:
        message = "--key is for keyed and broadcast state; this is a list, which has no keys"
        raise click.UsageError(message)
    return (row for row in data if text_of(row["key"]) == key)


@command.command(
    "export",
    epilog=examples(
        "holdfast state export checkpoints/orders/chk-7 inventory stock -o stock.parquet",
        "holdfast state export --windows chk-7 statistics -o s3a://bucket/open_windows.parquet",
        "holdfast state export chk-7 inventory stock --format csv -o - | sort",
    ),
)
@_state_options
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="The output file; '-' for a pipe."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(FORMATS)),
    help="Needed if the name of the file does not end with it.",
)
def export(output: str, kind: str | None, **which: Any) -> None:
    """Write a state to Parquet, JSON lines or CSV.

    OPERATOR is a uid or a name, STATE the name of a state. Parquet has the types that the state was
    saved with; lists and records in a CSV are JSON. An existing file is replaced.
    """
    kind = kind or format_of(output)
    if kind is None:
        message = f"'{output}' ends with no format that is known; add --format"
        raise click.UsageError(f"{message} {', '.join(FORMATS)}")
    data = _data(**which)
    try:
        _export(data, kind, output, which["properties"])
    except (StateTypeError, pa.ArrowException) as error:
        message = f"the state cannot be written as {kind}: {error}; jsonl holds every value"
        raise click.ClickException(message) from error


def _export(data: StateData, kind: str, output: str, properties: Mapping[str, str]) -> None:
    write = FORMATS[kind]
    if output == _STDOUT:
        write(data, sys.stdout.buffer)
        return
    files, path = located(output, properties)
    part = f"{path}.part"
    try:
        with files.open_output(part) as file:
            rows = write(data, file)
        files.move(part, path)
    except BaseException:
        files.delete(part)
        raise
    say(f"{counted(rows, 'row')} written to {files.uri(path)}", err=True)


@command.command(
    "diff",
    epilog=examples(
        "holdfast state diff checkpoints/orders/chk-7 checkpoints/orders/chk-8",
        "holdfast state diff --operator inventory --state stock --limit 100 chk-7 chk-8",
        "holdfast state diff --exit-code --limit 0 before after || echo they differ",
    ),
)
@click.argument("before")
@click.argument("after")
@click.option("--operator", metavar="OPERATOR", help="Only this one, by its uid or name.")
@click.option("--state", metavar="NAME", help="Only states of this name.")
@_limit_option
@click.option("--exit-code", "as_code", is_flag=True, help="Exit with 1 if they are different.")
@json_option
@_trusted_option
@properties_option
def diff(
    before: str,
    after: str,
    operator: str | None,
    state: str | None,
    limit: int,
    as_code: bool,
    as_json: bool,
    trusted: bool,
    properties: Mapping[str, str],
) -> None:
    """Tell which keys were added, removed and changed.

    BEFORE and AFTER are checkpoints or savepoints; operators go by their uids. All their states are
    in memory meanwhile.
    """
    one, other = (_read(path, properties, trusted) for path in (before, after))
    known = one.image.metadata.operators | other.image.metadata.operators
    uid = None if operator is None else find_operator(known, operator)[0]
    changes = [
        change
        for change in compare(one, other)
        if change and uid in (None, change.operator) and state in (None, _label(change.state))
    ]
    if as_json:
        click.echo(json.dumps([_json_change(change, limit) for change in changes], indent=2))
    elif not changes:
        say("nothing is different", err=True)
    else:
        for change in changes:
            _tell(change, limit)
    if changes and as_code:
        raise SystemExit(1)


def _json_change(change: StateChanges, limit: int) -> dict[str, Any]:
    return {
        "operator": change.operator,
        "state": _label(change.state),
        "added": change.added,
        "removed": change.removed,
        "changed": change.changed,
        "rows": [_json_row(row) for row in _some(change, limit)],
    }


def _tell(change: StateChanges, limit: int) -> None:
    counts = {"added": change.added, "removed": change.removed, "changed": change.changed}
    told = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    say(f"operator '{change.operator}', state '{_label(change.state)}': {told}")
    for row in _some(change, limit):
        say(f"  {_MARKS[row['change']]} {_place(row)}{_values(row)}")
    if (left := sum(counts.values()) - limit) > 0 and limit:
        say(f"  and {left} more")


def _some(change: StateChanges, limit: int) -> list[dict[str, Any]]:
    """Return some of the changed rows, in the order of their keys."""
    return sorted(change.rows, key=lambda row: _place(row) + _values(row))[:limit]


def _place(row: Mapping[str, Any]) -> str:
    parts = [text_of(row[name]) for name in ("key", "window") if name in row]
    return f"{' '.join(parts)}: " if parts else ""


def _values(row: Mapping[str, Any]) -> str:
    before, after = text_of(row["before"]), text_of(row["after"])
    return {"added": after, "removed": before}.get(row["change"], f"{before} -> {after}")


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json_of(value) for name, value in row.items()}


def _read(path: str, properties: Mapping[str, str], trusted: bool) -> Savepoint:
    where, _ = metadata_of(*located(path, properties))
    return Savepoint.read(where, trusted=trusted)


def _data(
    path: str,
    operator: str,
    state: str | None,
    windows: bool,
    timers: bool,
    kept_by: str | None,
    trusted: bool,
    properties: Mapping[str, str],
) -> StateData:
    """Return the rows that the command line selects."""
    if [state is not None, windows, timers].count(True) != 1:
        message = "name a STATE, or say --windows or --timers; 'holdfast state list' has them"
        raise click.UsageError(message)
    savepoint = _read(path, properties, trusted)
    uid, _ = find_operator(savepoint.image.metadata.operators, operator)
    if state is None:
        return savepoint.windows(uid) if windows else savepoint.timers(uid)
    found = _find(savepoint.operators[uid], state, kept_by)
    if found.keyed:
        return savepoint.keyed_state(uid, state, windowed=found.windowed)
    return savepoint.operator_state(uid, state)


def _find(operator: OperatorInfo, name: str, kept_by: str | None) -> StateInfo:
    states = [state for state in operator.states if not state.internal]
    found = {
        _kept_by(state): state
        for state in states
        if state.name == name and kept_by in (None, _kept_by(state))
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        message = f"operator '{operator.uid}' has several states '{name}'; add --kept-by"
        raise click.UsageError(f"{message} {' or '.join(found)}")
    known = ", ".join(sorted({f"'{state.name}'" for state in states}))
    message = f"operator '{operator.uid}' has no state '{name}'"
    raise click.ClickException(f"{message}; it has {known or 'none'}")


def _kept_by(state: StateInfo) -> str:
    return "operator" if not state.keyed else "window" if state.windowed else "key"


def _label(name: str) -> str:
    """Return the name of a state for people; the runtime's own have special names."""
    return name.removeprefix("\0").replace("-", " ") if name.startswith("\0") else name
