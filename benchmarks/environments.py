"""The virtual environments that the peers run in, made on first use.

Each peer has its own, since their requirements contradict each other and Holdfast's. A file
inside notes what was installed; while it says the same, the environment is used as it is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.delta import NEWEST_PYSPARK as DELTA_PYSPARK

__all__ = ["ENVIRONMENTS", "Environment", "EnvironmentFailed", "prepare"]

#: Written into an environment when everything is in it.
STAMP = "benchmark-requirements.txt"


class EnvironmentFailed(Exception):
    """An environment could not be made; the message says why."""


@dataclass(frozen=True)
class Environment:
    """What a peer needs."""

    name: str
    requirements: tuple[str, ...]
    #: The Python versions it has wheels for.
    pythons: tuple[str, ...]


ENVIRONMENTS = {
    each.name: each
    for each in (
        Environment("pyflink", ("apache-flink==2.3.*",), ("3.11", "3.12")),
        Environment(
            "pyspark",
            ("pyspark==4.3.*", "pandas<3", "pyarrow", "protobuf", "googleapis-common-protos"),
            ("3.11", "3.12", "3.13"),
        ),
        # the newest Spark that has a Kafka connector
        Environment(
            "pyspark-kafka",
            (
                *("pyspark==4.2.0", "pandas<3", "pyarrow", "protobuf", "googleapis-common-protos"),
                "confluent-kafka>=2.6,<3",
            ),
            ("3.11", "3.12", "3.13"),
        ),
        # the newest Spark that has a package of Delta
        Environment(
            "pyspark-delta",
            (
                *(f"pyspark=={DELTA_PYSPARK}", "pandas<3", "pyarrow"),
                *("protobuf", "googleapis-common-protos"),
            ),
            ("3.11", "3.12", "3.13"),
        ),
        Environment("bytewax", ("bytewax==0.21.*",), ("3.11", "3.12")),
        Environment("pathway", ("pathway==0.33.*",), ("3.11", "3.12", "3.13")),
        Environment("quix", ("quixstreams==3.28.*",), ("3.11", "3.12", "3.13")),
    )
}


def prepare(environment: Environment, root: Path, say: Callable[[str], None]) -> Path:
    """Make an environment unless it is there, and return its Python.

    Args:
        environment: What to install.
        root: The directory that holds the environments.
        say: Is told what takes time.
    """
    home = root / environment.name
    python = home / "bin" / "python"
    stamp = home / STAMP
    wanted = "\n".join(environment.requirements) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    say(f"installing {', '.join(environment.requirements)} (once; it may take some minutes)")
    if home.exists():
        shutil.rmtree(home)
    root.mkdir(parents=True, exist_ok=True)
    _make(environment, home)
    _checked([str(python), "-m", "pip", "install", "--quiet", *environment.requirements])
    stamp.write_text(wanted, "utf-8")
    return python


def _make(environment: Environment, home: Path) -> None:
    interpreter = _interpreter(environment.pythons)
    if interpreter is not None:
        _checked([interpreter, "-m", "venv", str(home)])
    elif (uv := shutil.which("uv")) is not None:
        _checked([uv, "venv", "--quiet", "--seed", "--python", environment.pythons[0], str(home)])
    else:
        raise EnvironmentFailed(
            f"{environment.name} needs Python {' or '.join(environment.pythons)}; none was found. "
            "Install one, or uv, which brings its own."
        )


def _interpreter(versions: tuple[str, ...]) -> str | None:
    """Return a Python of one of the versions; candidates are run, since not every one starts."""
    for candidate in (sys.executable, *(f"python{version}" for version in versions)):
        found = shutil.which(candidate)
        if found is not None and _version(found) in versions:
            return found
    return None


def _version(python: str) -> str:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise EnvironmentFailed(f"{' '.join(command)} failed: {last[0]}")
