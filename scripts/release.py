"""Makes a release: ``make release VERSION=0.2.0``; see docs/internals/releasing.md.

Writes the version and the day of the release, writes the golden checkpoints of this version, builds
and checks the distributions, commits, and tags. Nothing leaves this machine: pushing the tag
publishes the release.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

__all__ = ["ReleaseError", "dated", "with_version"]

ROOT: Final = Path(__file__).resolve().parents[1]
CHANGELOG: Final = ROOT / "CHANGELOG.md"
SOURCE: Final = ROOT / "src" / "holdfast" / "__init__.py"
_VERSION: Final = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_UNRELEASED: Final = "## [Unreleased]\n"


class ReleaseError(Exception):
    """The release cannot be made."""


def with_version(source: str, version: str) -> str:
    """Return the module with another version.

    Raises:
        ReleaseError: if it is not a version, is not written as in the names of the
            distributions, or is older than the one that is there.
    """
    (old,) = _VERSION.findall(source)
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise ReleaseError(f"{version!r} is not a version; use one such as 0.2.0") from error
    if str(parsed) != version:
        raise ReleaseError(f"{version!r} is written {str(parsed)!r}; use that")
    if parsed < Version(old):
        raise ReleaseError(f"version {version} is older than {old}, which the source has")
    return _VERSION.sub(f'__version__ = "{version}"', source)


def dated(changelog: str, version: str, day: date) -> str:
    """Return the changelog with its unreleased changes under a version.

    Raises:
        ReleaseError: if there are none, or that version is there already.
    """
    before, _, after = changelog.partition(_UNRELEASED)
    if f"\n## [{version}]" in after:
        raise ReleaseError(f"CHANGELOG.md has version {version} already; release the next one")
    changes = re.split(r"^## \[", after, maxsplit=1, flags=re.MULTILINE)[0]
    if all(not line.strip() or line.startswith("#") for line in changes.splitlines()):
        raise ReleaseError("CHANGELOG.md has no unreleased changes: there is nothing to release")
    return f"{before}{_UNRELEASED}\n## [{version}] - {day.isoformat()}\n{after}"


def main(version: str) -> None:
    """Make the release."""
    if _git("status", "--porcelain"):
        raise ReleaseError("there are uncommitted changes; commit or remove them first")
    tag = f"v{version}"
    if _git("tag", "--list", tag):
        raise ReleaseError(f"there is a tag {tag} already")
    # NB: both before either is written, so that a release that cannot be made leaves nothing behind
    source = with_version(SOURCE.read_text(), version)
    changelog = dated(CHANGELOG.read_text(), version, datetime.now(UTC).date())
    SOURCE.write_text(source)
    CHANGELOG.write_text(changelog)
    _run(sys.executable, "-m", "tests.golden.make")
    _run("make", "dist")
    _git("add", "--all")
    _git("commit", "--quiet", "--message", f"Release {version}")
    _git("tag", "--annotate", "--message", f"Holdfast {version}", tag)
    print(f"release {version} is ready; this publishes it: git push origin HEAD {tag}")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def _run(*command: str) -> None:
    # NB: or the golden checkpoints would be those of another Holdfast
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        undo = "git checkout . && git clean -fd tests/golden"
        raise ReleaseError(f"{' '.join(command)} failed; this undoes what was written: {undo}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: give a version, such as: make release VERSION=0.2.0")
    try:
        main(sys.argv[1])
    except ReleaseError as problem:
        sys.exit(f"error: {problem}")
