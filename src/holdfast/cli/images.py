"""Finds checkpoints and savepoints, and reads their metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import click

from holdfast.checkpoint.directory import METADATA
from holdfast.checkpoint.metadata import CheckpointMetadata
from holdfast.checkpoint.saved_image import read_metadata
from holdfast.filesystem import FileSystem, configure, file_system_of, hadoop_options, join


def located(address: str, properties: Mapping[str, str]) -> tuple[FileSystem, str]:
    """Return the file system of a user's address, and the path in it."""
    configure(hadoop_options(properties))
    try:
        return file_system_of(address)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def images_below(files: FileSystem, path: str) -> list[str]:
    """Return the directories of checkpoints and savepoints at or below a path.

    Raises:
        ClickException: when the path does not exist.
    """
    status = files.status(path)
    if status is None or not status.is_directory:
        message = f"there is no directory '{files.uri(path)}'"
        raise click.ClickException(f"{message}; name one with checkpoints or savepoints in it")
    if _is_image(files, path):
        return [path]
    found: list[str] = []
    for child in _directories(files, path):
        inside = [child] if _is_image(files, child) else _directories(files, child)
        found += [image for image in inside if _is_image(files, image)]
    return found


def metadata_of(files: FileSystem, path: str) -> tuple[str, CheckpointMetadata]:
    """Return the address and the metadata of a checkpoint or savepoint.

    Raises:
        ClickException: when there is none.
        CheckpointError: when its metadata cannot be used.
    """
    directory = PurePosixPath(path)
    if directory.name == METADATA:
        directory = directory.parent
    where = files.uri(str(directory))
    if not _is_image(files, str(directory)):
        message = f"there is no checkpoint or savepoint in '{where}': no file '{METADATA}'"
        raise click.ClickException(f"{message}; 'holdfast checkpoints list {where}' looks further")
    return where, read_metadata(directory / METADATA, files)


def kind_of(metadata: CheckpointMetadata) -> str:
    """Return the word for an image: checkpoint or savepoint."""
    return "savepoint" if metadata.savepoint else "checkpoint"


def _is_image(files: FileSystem, path: str) -> bool:
    return files.exists(join(path, METADATA))


def _directories(files: FileSystem, path: str) -> list[str]:
    """Return the directories in a directory, in natural order."""
    names = [status.name for status in files.list_directory(path) if status.is_directory]
    return [join(path, name) for name in sorted(names, key=_by_number)]


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]
