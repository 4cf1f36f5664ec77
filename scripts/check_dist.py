"""Checks what has been built into dist, as ``make dist`` does before a release.

1. The metadata of the wheel is valid by the rules of PyPI, and complete.
2. The source distribution builds the same wheel.
3. Where the wheel is installed with what it asks for, and nothing else, the program of the README
   prints what the README says. The packages are downloaded, unless pip has them in its cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata

__all__ = ["DistError", "check_metadata", "check_source", "readme_program"]

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
_PROGRAM: Final = re.compile(r"```python\n(.*?)```.*?```text\n(.*?)```", re.DOTALL)
_PIP: Final = ("-m", "pip", "--disable-pip-version-check")


class DistError(Exception):
    """What was built must not be published."""


def check_metadata(wheel: Path) -> Metadata:
    """Return the metadata of a wheel.

    Raises:
        DistError: if something is missing.
        ExceptionGroup: if PyPI would refuse it.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(name), validate=True)
    needed = ("summary", "description", "license_expression", "requires_python", "classifiers")
    missing = [field for field in needed if not getattr(metadata, field)]
    if missing or metadata.description_content_type != "text/markdown":
        raise DistError(f"{wheel.name}: no {', '.join(missing) or 'Markdown as its description'}")
    return metadata


def check_source(source: Path, wheel: Path) -> None:
    """Build the wheel again, of the source distribution.

    Raises:
        DistError: if it is another one.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder)
        _run(sys.executable, *_PIP, "wheel", *options, str(source))
        (built,) = Path(folder).glob("*.whl")
        different = _contents(built).items() ^ _contents(wheel).items()
    if different:
        names = sorted({name for name, _ in different})
        raise DistError(f"{source.name} builds another wheel: {', '.join(names)}")


def _contents(wheel: Path) -> dict[str, int]:
    """The checksums of the files."""
    with zipfile.ZipFile(wheel) as archive:
        return {member.filename: member.CRC for member in archive.infolist()}


def readme_program() -> tuple[str, str]:
    """Return the first program of the README, and what it prints."""
    found = _PROGRAM.search((ROOT / "README.md").read_text())
    if found is None:
        raise DistError("the README has no program with its output")
    return found[1], found[2]


def run_a_job(wheel: Path) -> None:
    """Install the wheel into an empty environment, and run the program of the README there.

    Raises:
        DistError: if it prints something else.
    """
    program, output = readme_program()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "venv"
        venv.create(place)
        python = str(place / "bin" / "python")
        _run(sys.executable, *_PIP, "--python", python, "install", "--quiet", str(wheel))
        (Path(folder) / "program.py").write_text(program)
        command = str(place / "bin" / "holdfast")
        printed = _run(command, "run", "program.py", folder=Path(folder))
    if printed != output:
        raise DistError(f"the program of the README printed {printed!r} instead of {output!r}")


def _run(*command: str, folder: Path = ROOT) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise DistError(f"{' '.join(command)} ended with exit code {done.returncode}")
    return done.stdout


def main() -> None:
    """Check the wheel and the source distribution in dist."""
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    version = check_metadata(wheel).version
    print(f"{wheel.name}: the metadata is valid, version {version}")
    check_source(source, wheel)
    print(f"{source.name}: builds the same wheel")
    print("installing the wheel into an empty environment", flush=True)
    run_a_job(wheel)
    print("the program of the README runs there")


if __name__ == "__main__":
    try:
        main()
    except DistError as problem:
        sys.exit(f"error: {problem}")
