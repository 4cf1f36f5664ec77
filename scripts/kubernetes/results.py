"""Reads the results of the trial's job, and says what is wrong with them, as JSON.

python -m scripts.kubernetes.results HOST PORT NUMBERS
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from pyarrow.fs import FileSelector, FileType, S3FileSystem

from scripts.kubernetes.job import KEYS

PLACE = "kept/counts"


def lines(store: S3FileSystem) -> list[str]:
    """Return those of the files that are complete: others are hidden."""
    found = store.get_file_info(FileSelector(PLACE, recursive=True, allow_not_found=True))
    files = [each.path for each in found if each.type == FileType.File]
    visible = [path for path in files if "/." not in path and "/_" not in path]
    return [line for path in visible for line in _text(store, path).splitlines()]


def _text(store: S3FileSystem, path: str) -> str:
    with store.open_input_stream(path) as stream:
        return str(stream.read(), "utf-8")


def right(numbers: int) -> Counter[str]:
    """Return what the job writes if nothing is lost and nothing counts twice.

    The sums depend on the order in which the numbers of a key arrive, except for the last one.
    """
    each = range(1, numbers // KEYS + 1)
    return Counter(f"{key} {count}" for key in range(KEYS) for count in each)


def wrong(found: list[str], numbers: int) -> list[str]:
    """Return some lines that are missing or there too often, or whose sum is wrong."""
    counted = Counter(line.rpartition(" ")[0] for line in found)
    last = {tuple(line.split()[::2]) for line in found if line.split()[1] == f"{numbers // KEYS}"}
    sums = {(str(key), str(sum(range(key, numbers, KEYS)))) for key in range(KEYS)}
    expected = right(numbers)
    differ = (counted - expected) + (expected - counted)
    return [*sorted(differ)[:10], *map(str, sorted(last ^ sums)[:10])]


def main(host: str, port: str, numbers: int) -> None:
    """Print what was found."""
    store = S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=f"http://{host}:{port}",
        region="us-east-1",
    )
    found = lines(store)
    print(json.dumps({"lines": len(found), "wrong": wrong(found, numbers)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
