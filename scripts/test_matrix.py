"""Runs tests that touch Spark with each PySpark and each Python that are promised.

    make test-matrix                                       a short selection (-m matrix)
    make test-matrix ARGS="--pyspark 4.1 --python 3.11"    one pair of versions
    make test-matrix ARGS="-- -m spark"                    what follows -- goes to pytest instead

Each pair has an environment of its own in build/matrix, with the packages that constraints.txt
pins and the newest release of that PySpark. A Python that is not there is a failed row of the
table.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = ROOT / "build" / "matrix"
#: those that pyproject.toml promises
PYSPARKS: Final = ("4.1", "4.2", "4.3")
PYTHONS: Final = ("3.11", "3.12", "3.13")
SELECTION: Final = ("-m", "matrix")
#: what PySpark itself does not close: its own `collect()` is enough to see it
WARNINGS: Final = {"4.1": ("-W", "ignore:unclosed <socket.socket:ResourceWarning")}
#: an entry of constraints.txt, with its hashes and comments
_ENTRY: Final = re.compile(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9]|\Z)", re.MULTILINE | re.DOTALL)
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")


class MatrixError(Exception):
    """An environment cannot be had."""


def main() -> int:
    """Run the tests; returns 1 if some failed or an environment could not be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pyspark", nargs="+", default=PYSPARKS, metavar="VERSION")
    parser.add_argument("--python", nargs="+", default=PYTHONS, metavar="VERSION")
    parser.add_argument("tests", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    results = []
    for python in options.python:
        for pyspark in options.pyspark:
            results.append((pyspark, python, *_try(pyspark, python, options.tests or SELECTION)))
            _print_table(results)
    return 0 if all(passed for _, _, passed, _ in results) else 1


def _try(pyspark: str, python: str, tests: Sequence[str]) -> tuple[bool, str]:
    """Return whether the tests pass, and what the table says."""
    try:
        interpreter = _environment(pyspark, python)
    except MatrixError as error:
        return False, str(error)
    except subprocess.CalledProcessError as error:
        return False, f"packages cannot be installed: {' '.join(map(str, error.cmd[-3:]))}"
    began = time.monotonic()
    summary = ""
    command = [interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [*WARNINGS.get(pyspark, ()), *tests]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            summary = line.strip() or summary
    versions = ", ".join(_versions(interpreter))
    seconds = time.monotonic() - began
    return run.returncode == 0, f"{summary.strip('= ')} ({versions}; {seconds:.0f} s in all)"


def _environment(pyspark: str, python: str) -> Path:
    """Return the interpreter of an environment; makes it, unless it is there already."""
    folder = PLACE / f"pyspark-{pyspark}-python-{python}"
    interpreter, stamp = folder / "bin" / "python", folder / "holdfast.stamp"
    wanted = "\n".join((str(ROOT), *_pinned(), f"pyspark {pyspark}"))
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"making {folder.relative_to(ROOT)}", flush=True)
    _make(folder, python)
    others = folder / "constraints.txt"
    others.write_text("".join(_pinned()))
    build = ROOT / "constraints-build.txt"
    _run(interpreter, *_PIP, "--require-hashes", "-r", build)
    _run(interpreter, *_PIP, "--require-hashes", "--no-build-isolation", "-r", others)
    _run(interpreter, *_PIP, "--no-build-isolation", "--no-deps", f"pyspark=={pyspark}.*")
    _run(interpreter, *_PIP, "--no-build-isolation", "--no-deps", "-e", ROOT)
    _run(interpreter, "-m", "pip", "check")
    stamp.write_text(wanted)
    return interpreter


def _pinned() -> list[str]:
    """Return the entries of constraints.txt, without PySpark's."""
    entries = _ENTRY.findall((ROOT / "constraints.txt").read_text())
    return [entry for entry in entries if not entry.startswith("pyspark==")]


def _make(folder: Path, python: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for found in _interpreters(python):
        if subprocess.run([found, "-m", "venv", folder], check=False).returncode == 0:
            return
    raise MatrixError(
        f"there is no Python {python} here: put one on PATH, or install it with pyenv"
    )


def _interpreters(python: str) -> Iterator[Path]:
    """Yield the interpreters of a version that start; version managers leave names that do not."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    named = shutil.which(f"python{python}")
    for place in (named, *sorted(versions.glob(f"{python}.*/bin/python"))):
        if place is not None and _is_python(Path(place), python):
            yield Path(place)


def _is_python(interpreter: Path, python: str) -> bool:
    ask = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=False)
    return found.stdout.strip() == python


def _versions(interpreter: Path) -> list[str]:
    ask = "import platform, pyspark; print(f'PySpark {pyspark.__version__}, Python', end=' '); "
    ask += "print(platform.python_version())"
    found = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=True)
    return found.stdout.strip().split(", ")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _print_table(results: Sequence[tuple[str, str, bool, str]]) -> None:
    print("\n| PySpark | Python | | tests |\n| --- | --- | --- | --- |")
    for pyspark, python, passed, told in results:
        print(f"| {pyspark} | {python} | {'passed' if passed else 'FAILED'} | {told} |")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
