"""The jars of a server: fetched once, kept in the user's cache folder.

Every jar is compared with its SHA-256 digest in `digests.txt` each time it is used, so that neither
a repository nor a proxy nor the cache can hand out another one. To change a version, run what
fetches it once with HOLDFAST_NEW_DIGESTS=1, which adds the new digests, and commit them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark


class Artifact(NamedTuple):
    """One artifact of a Maven repository.

    Attributes:
        classifier: of another jar than the main one, such as that of the tests.
    """

    organisation: str
    name: str
    version: str
    classifier: str = ""

    @property
    def jar(self) -> str:
        """The name of its file."""
        return "-".join(filter(None, [self.name, self.version, self.classifier])) + ".jar"


DIGESTS = Path(__file__).with_name("digests.txt")


class UnavailableError(Exception):
    """A server's classes cannot be had here, and why."""


class DigestError(Exception):
    """A jar is not the one whose digest is in the repository; it must not be used."""


def spark_jars() -> Path:
    """The folder of the jars that Spark brings along."""
    return Path(pyspark.__file__).parent / "jars"


def jars_of_spark(names: Sequence[str]) -> list[Path]:
    """The jars that Spark brings along whose names begin with one of these."""
    return [jar for jar in sorted(spark_jars().glob("*.jar")) if jar.name.startswith(tuple(names))]


def java() -> str:
    """The Java to run servers with: that of Spark."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def cache_folder() -> Path:
    """Where fetched jars are kept: HOLDFAST_CACHE, or holdfast in the user's cache folder."""
    own = os.environ.get("HOLDFAST_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(caches) / "holdfast"


def fetched(
    name: str,
    artifacts: Sequence[Artifact],
    *,
    transitive: bool = True,
    excluded: Sequence[str] = (),
) -> list[Path]:
    """The jars of artifacts, and unless told otherwise of all that they need at run time.

    Args:
        name: what they make up; a word for the folder and for messages.
        artifacts: what to fetch.
        transitive: False for these jars alone.
        excluded: modules that nobody shall bring along.

    Raises:
        UnavailableError: when they cannot be had.
        DigestError: when one of them is not the expected file.
    """
    order = repr((artifacts, transitive, excluded))
    digest = hashlib.sha256(order.encode()).hexdigest()[:12]
    home = cache_folder() / "jars" / f"{name}-{digest}"
    with locked(cache_folder() / f"{name}.lock"):
        if not home.exists():
            home.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=home.parent))
            try:
                _fetch(name, artifacts, transitive, excluded, draft)
                check_digests(draft.glob("*.jar"))
                draft.rename(home)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    jars = sorted(home.glob("*.jar"))
    check_digests(jars)
    return jars


def check_digests(jars: Iterable[Path], digests: Path = DIGESTS) -> None:
    """Compare files with their digests.

    Raises:
        DigestError: when one is not listed under its name, or is another file.
    """
    known = read_digests(digests)
    found = {jar: sha256_of(jar) for jar in jars}
    if os.environ.get("HOLDFAST_NEW_DIGESTS"):
        _write_digests(known | {jar.name: digest for jar, digest in found.items()}, digests)
        return
    for jar, digest in found.items():
        expected = known.get(jar.name, "(none is known)")
        if digest != expected:
            raise DigestError(
                f"{jar}: expected SHA-256 {expected}, found {digest}; "
                f"delete {jar.parent} and try again. If a version was changed on purpose, set "
                f"HOLDFAST_NEW_DIGESTS=1 once to add its digest to {digests.name}"
            )


def read_digests(digests: Path = DIGESTS) -> dict[str, str]:
    """The digests of all jars that may be used, by file name."""
    lines = digests.read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _write_digests(known: dict[str, str], digests: Path) -> None:
    """Write digests in the form that ``sha256sum --check`` reads."""
    lines = (f"{digest}  {name}\n" for name, digest in sorted(known.items()))
    digests.write_text("".join(lines))


def sha256_of(file: Path) -> str:
    """The SHA-256 digest of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes of this machine out; they wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(
    name: str,
    artifacts: Sequence[Artifact],
    transitive: bool,
    excluded: Sequence[str],
    folder: Path,
) -> None:
    module = folder / "ivy.xml"
    module.write_text(_module(artifacts, transitive, excluded))
    (client,) = spark_jars().glob("ivy-*.jar")
    pattern = str(folder / "[artifact]-[revision](-[classifier]).[ext]")
    command = [java(), "-jar", str(client), "-ivy", str(module), "-retrieve", pattern]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UnavailableError(f"there is no {name} without Java: {error}") from error
    jars = [folder / artifact.jar for artifact in artifacts]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing or run.returncode:
        reason = (run.stdout + run.stderr)[-500:]
        raise UnavailableError(f"there is no {name} without {', '.join(missing)}: {reason}")


def _module(artifacts: Sequence[Artifact], transitive: bool, excluded: Sequence[str]) -> str:
    wanted = "default->master,runtime(default)" if transitive else "default->master"
    dependencies = "".join(_dependency(artifact, wanted) for artifact in artifacts)
    exclusions = "".join(f'<exclude module="{module}"/>' for module in excluded)
    return (
        '<ivy-module version="2.0" xmlns:e="http://ant.apache.org/ivy/extra">'
        '<info organisation="holdfast" module="services"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}{exclusions}</dependencies></ivy-module>"
    )


def _dependency(artifact: Artifact, wanted: str) -> str:
    organisation, name, version, classifier = artifact
    chosen = (
        f'<artifact name="{name}" type="jar" e:classifier="{classifier}"/>' if classifier else ""
    )
    given = f'org="{organisation}" name="{name}" rev="{version}" conf="{wanted}"'
    return f"<dependency {given}>{chosen}</dependency>"
