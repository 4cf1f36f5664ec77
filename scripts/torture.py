"""Tortures the programs of this repository, and prints a table of the results.

    python scripts/torture.py examples            the broken examples, and good ones
    python scripts/torture.py long [BROKER]       1,000 faults over the order system and Kafka

``examples``: the exit code is 1 if a broken job passes, or a good one does not. ``long`` takes
hours; without the address of a broker of Kafka it leaves out what needs one. The variable FAULTS
sets another number of faults.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
BROKEN: Final = sorted((ROOT / "examples" / "broken").glob("[!_]*.py"))
GOOD: Final = ("count_per_key", "with_state", "word_count")
ENGINES: Final = ("resident", "epochs")
#: events per fault, so that records flow when it strikes
EVENTS: Final = 40
#: these depend on the order in which the sources deliver; --verify checks them nevertheless
UNSTABLE: Final = (
    *("--ignore", "stock to files", "--ignore", "stock to Kafka"),
    *("--ignore", "files in {run}/output/batches"),
)
SHOP: Final = ("--disorder", "--duplicates", "0.05")


class Result(NamedTuple):
    """What came of one torture."""

    code: int
    seconds: float
    report: dict[str, object]


def tortured(options: Sequence[str], program: Sequence[str]) -> Result:
    """Torture a program."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        place = Path(folder, "report")
        command = [sys.executable, "-m", "holdfast", "torture", "--report", str(place)]
        code = subprocess.run([*command, *options, *program], cwd=ROOT, check=False).returncode
        written = place / "report.json"
        report = json.loads(written.read_bytes()) if written.exists() else {}
    return Result(code, time.monotonic() - began, report)


def row(name: str, result: Result) -> str:
    """Return a line of the table."""
    report = result.report
    kinds = report.get("by_kind", {})
    assert isinstance(kinds, dict)
    faults = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"| {name} | {sum(kinds.values())} | {faults} | {result.seconds:.0f} s | {result.code} |"


def examples() -> int:
    """Torture the broken examples, and good ones."""
    faults = os.environ.get("FAULTS", "5")
    found = ("--faults", faults, "--seed", "1", "--calm", "1", "--only", "kill-worker,fail-task")
    wrong, rows = [], []
    for path in BROKEN:
        result = tortured(found, [str(path)])
        rows.append(row(path.stem, result))
        if result.code != 1:
            wrong.append(f"the mistake in {path.stem} was not found")
    for name in GOOD:
        result = tortured(("--faults", faults, "--seed", "1"), [f"examples/{name}.py"])
        rows.append(row(name, result))
        if result.code != 0:
            wrong.append(f"{name} is good, and did not pass")
    return end(rows, wrong)


def long(brokers: Sequence[str]) -> int:
    """Torture the order system, from its generator to files, and from Kafka to Kafka.

    From files it also verifies its results itself.
    """
    programs = 1 + bool(brokers)
    share = int(os.environ.get("FAULTS", "1000")) // (programs * len(ENGINES))
    shop = ("-m", "examples.orders", *SHOP, "--events", str(max(4000, EVENTS * share)))
    job = (*shop, "--parallelism", "2", "--directory", "{run}")
    tried = {"orders to files": (*job, "--verify")}
    for broker in brokers[:1]:
        topics = ("--broker", broker, "--topic", f"torture-{int(time.time())}")
        subprocess.run([sys.executable, *shop, *topics, "--produce"], cwd=ROOT, check=True)
        tried["Kafka to Kafka"] = (*job, *topics, "--source", "kafka", "--to-kafka")
    wrong, rows = [], []
    for name, program in tried.items():
        for engine in ENGINES:
            options = ("--faults", str(share), "--seed", "7", "--engine", engine, *UNSTABLE)
            result = tortured(options, program)
            rows.append(row(f"{name}, {engine}", result))
            if result.code != 0:
                wrong.append(f"{name} on the {engine} engine: exit code {result.code}")
    return end(rows, wrong)


def end(rows: Sequence[str], wrong: Sequence[str]) -> int:
    """Print the table, and what is wrong; returns the exit code."""
    print(
        "| program | faults | kinds | time | exit code |",
        "| --- | --- | --- | --- | --- |",
        sep="\n",
    )
    print("\n".join(rows))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["examples"]:
            raise SystemExit(examples())
        case ["long", *given]:
            raise SystemExit(long(given))
        case _:
            raise SystemExit(__doc__)
