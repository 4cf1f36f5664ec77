"""``holdfast checkpoints``: inspects saved state without running jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.metadata import CheckpointMetadata, OperatorImage
from holdfast.checkpoint.saved_image import verify_files
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.cli.images import images_below, kind_of, located, metadata_of
from holdfast.cli.options import examples, json_option, properties_option
from holdfast.cli.text import say, size_of, table, time_of
from holdfast.filesystem import FileSystem
from holdfast.printable import counted
from holdfast.state.errors import StateError
from holdfast.state.format.catalog import SavedState
from holdfast.state.types.schema import describe


@click.group("checkpoints")
def command() -> None:
    """Inspect checkpoints and savepoints.

    No job is needed, and running jobs are not affected.
    """


@command.command(
    "list",
    epilog=examples(
        "holdfast checkpoints list checkpoints",
        "holdfast checkpoints list -D fs.s3a.endpoint=http://minio:9000 s3a://bucket/savepoints",
        "holdfast checkpoints list --json checkpoints/orders | jq -r '.[-1].path'",
    ),
)
@click.argument("directory")
@json_option
@properties_option
def list_images(directory: str, as_json: bool, properties: Mapping[str, str]) -> None:
    """List the checkpoints and savepoints in a directory.

    DIRECTORY contains checkpoints or savepoints, or the checkpoint directories of jobs.
    """
    files, path = located(directory, properties)
    found = [_listed(files, image) for image in images_below(files, path)]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif not found:
        say(f"no checkpoints or savepoints in {files.uri(path)}", err=True)
    else:
        for line in table(
            ("ID", "KIND", "JOB", "TAKEN", "FILES", "SIZE", "PATH"), map(_row, found)
        ):
            say(line)


def _listed(files: FileSystem, image: str) -> dict[str, Any]:
    try:
        where, metadata = metadata_of(files, image)
    except CheckpointError as error:
        return {"path": files.uri(image), "problem": str(error)}
    return _summary(where, metadata)


def _summary(where: str, metadata: CheckpointMetadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        "kind": kind_of(metadata),
        "job": metadata.job_name,
        "timestamp": metadata.timestamp,
        "epoch": metadata.epoch,
        "files": len(metadata.files()),
        "size": metadata.state_size,
        "path": where,
    }


def _row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    if "problem" in entry:
        return "?", "damaged", "?", "?", "?", "?", entry["path"]
    taken, size = time_of(entry["timestamp"]), size_of(entry["size"])
    return entry["id"], entry["kind"], entry["job"], taken, entry["files"], size, entry["path"]


@command.command(
    "show",
    epilog=examples(
        "holdfast checkpoints show checkpoints/orders/chk-7",
        "holdfast checkpoints show --json savepoints/savepoint-orders-7-1b2c3d4e",
    ),
)
@click.argument("path")
@json_option
@properties_option
def show(path: str, as_json: bool, properties: Mapping[str, str]) -> None:
    """Show the operators and states of a checkpoint or savepoint.

    PATH is a directory such as chk-7 or savepoint-orders-7-1b2c3d4e, or the file _metadata in it.
    """
    where, metadata = metadata_of(*located(path, properties))
    if as_json:
        click.echo(json.dumps(_details(where, metadata), indent=2))
    else:
        for line in _described(where, metadata):
            say(line)


def _details(where: str, metadata: CheckpointMetadata) -> dict[str, Any]:
    return _summary(where, metadata) | {
        "files": metadata.file_sizes(),
        "levels": [level.parallelism for level in metadata.levels],
        "operators": {uid: _operator(image) for uid, image in metadata.operators.items()},
    }


def _operator(image: OperatorImage) -> dict[str, Any]:
    return {
        "name": image.name,
        "kind": image.kind,
        "level": image.level,
        "parallelism": image.parallelism,
        "max_parallelism": image.max_parallelism,
        "stateful": image.stateful,
        "key_type": None if image.key_type is None else describe(image.key_type),
        "states": [
            {
                "name": state.name,
                "kind": state.kind,
                "types": [None if kind is None else describe(kind) for kind in state.types],
                "namespaced": state.namespaced,
                "pickled": state.pickled,
                "expires": state.expires,
            }
            for state in image.states
        ],
    }


def _described(where: str, metadata: CheckpointMetadata) -> Iterator[str]:
    yield f"{kind_of(metadata)} {metadata.id} of job '{metadata.job_name}'"
    yield f"  path    {where}"
    yield f"  taken   {time_of(metadata.timestamp)}, after epoch {metadata.epoch}"
    files = counted(len(metadata.files()), "state file")
    yield f"  size    {size_of(metadata.state_size)} in {files}"
    for uid, image in metadata.operators.items():
        yield (
            f"operator '{image.name}' uid={uid} level={image.level} "
            f"parallelism={image.parallelism} key_groups={image.max_parallelism}"
            f"{'' if image.stateful else ' without state'}"
        )
        if image.key_type is not None:
            yield f"  by key: {describe(image.key_type)}"
        for state in image.states:
            yield f"  state '{state.name}' [{state.kind}]{_properties(state)}"


def _properties(state: SavedState) -> str:
    types = ", ".join(describe(kind) for kind in state.types if kind is not None)
    noted = [
        text
        for text, holds in (
            ("by window", state.namespaced),
            ("pickled", state.pickled),
            ("with a time-to-live", state.expires),
        )
        if holds
    ]
    return (f" of {types}" if types else "") + "".join(f", {text}" for text in noted)


@command.command(
    "verify",
    epilog=examples(
        "holdfast checkpoints verify checkpoints/orders",
        "holdfast checkpoints verify s3a://bucket/savepoints/savepoint-orders-7-1b2c3d4e",
    ),
)
@click.argument("path")
@json_option
@properties_option
def verify(path: str, as_json: bool, properties: Mapping[str, str]) -> None:
    """Read every file, and compare the checksums.

    PATH is a checkpoint, a savepoint, or a directory as for list. The exit code is 1 if a file
    is damaged.
    """
    files, where = located(path, properties)
    images = images_below(files, where)
    if not images:
        message = f"there is no checkpoint or savepoint in '{files.uri(where)}' to verify"
        raise click.ClickException(message)
    verdicts = []
    for image in images:
        address = files.uri(image)
        verdicts.append({"path": address, "problem": _problem(address)})
        if not as_json:
            _tell(verdicts[-1])
    if as_json:
        click.echo(json.dumps(verdicts, indent=2))
    if any(verdict["problem"] for verdict in verdicts):
        raise SystemExit(1)


def _problem(address: str) -> str | None:
    try:
        found = read_savepoint(address)
        verify_files(found.metadata, found.storage, deep=True)
    except (CheckpointError, StateError) as error:
        return str(error)
    return None


def _tell(verdict: Mapping[str, str | None]) -> None:
    problem = verdict["problem"]
    say(f"{verdict['path']}: {'all right' if problem is None else f'DAMAGED: {problem}'}")
