"""Starts servers that stay until they are stopped: ``python -m services start kafka``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from services.artifacts import UnavailableError, cache_folder
from services.hbase import HBase
from services.kafka import KafkaBroker
from services.process import JavaProcess, ServerError, end, runs


class Service(Protocol):
    """What every server can do."""

    @property
    def address(self) -> str:
        """Where clients find it."""

    @property
    def processes(self) -> list[JavaProcess]:
        """The processes it consists of."""

    def start(self, *, outlives: bool = False) -> None:
        """Start, and wait until it answers."""


class Page(msgspec.Struct):
    """What is written down of a service that was started."""

    address: str
    folder: Path
    processes: list[tuple[int, Path]]


SERVICES: dict[str, Callable[[Path], Service]] = {"kafka": KafkaBroker, "hbase": HBase}


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m services", description=__doc__)
    parser.add_argument("command", choices=["start", "stop", "status"])
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(SERVICES))
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(SERVICES)
    if unknown:
        parser.error(f"no such service: {', '.join(sorted(unknown))}; there are {list(SERVICES)}")
    return {"start": _start, "stop": _stop, "status": _status}[options.command](
        options.names or list(SERVICES)
    )


def _start(names: Sequence[str]) -> int:
    code = 0
    for name in names:
        if name in dict(_running()):
            print(f"{name}: runs already")
            continue
        _end(name)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-")) / name
        try:
            service = SERVICES[name](folder)
            service.start(outlives=True)
        except (UnavailableError, ServerError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            shutil.rmtree(folder.parent)
            code = 1
            continue
        processes = [(process.pid, process.folder) for process in service.processes]
        _page_of(name).parent.mkdir(parents=True, exist_ok=True)
        _page_of(name).write_bytes(
            msgspec.json.encode(Page(service.address, folder, processes), enc_hook=str)
        )
    _status(names)
    return code


def _stop(names: Sequence[str]) -> int:
    for name in names:
        if _end(name):
            print(f"{name}: stopped")
    return 0


def _end(name: str) -> bool:
    """End a service and remove its files, or what is left of them; whether there was anything."""
    page = dict(_pages()).get(name)
    if page is None:
        return False
    for process in reversed(page.processes):
        end(*process)
    shutil.rmtree(page.folder.parent, ignore_errors=True)
    _page_of(name).unlink()
    return True


def _status(names: Sequence[str]) -> int:
    for name, page in _running():
        if name in names:
            print(f"{name}: {page.address} (files and log in {page.folder})")
    return 0


def _running() -> Iterator[tuple[str, Page]]:
    """What runs; a page may be left of what ended with the machine."""
    for name, page in _pages():
        if all(runs(*process) for process in page.processes):
            yield name, page


def _pages() -> Iterator[tuple[str, Page]]:
    for path in sorted(_page_of("").parent.glob("*.json")):
        page = msgspec.json.decode(
            path.read_bytes(), type=Page, dec_hook=lambda _, text: Path(text)
        )
        yield path.stem, page


def _page_of(name: str) -> Path:
    """Where it is written down that a service was started."""
    return cache_folder() / "running" / f"{name}.json"


if __name__ == "__main__":
    sys.exit(main())
