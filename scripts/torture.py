"""Tortures the programs of this repository, and prints a table of the results.

    python scripts/torture.py examples                the broken examples, and good ones
    python scripts/torture.py long RESULTS [BROKER]   1,000 faults over the order system, Kafka, and
                                                      a job that changes values in place
    python scripts/torture.py sum RESULTS             a table of what was collected so far

``examples``: the exit code is 1 if a broken job passes, or a good one does not.

``long`` collects pieces: a piece is one torture of one program on one engine, with its own seed,
and is one line of JSON in the file RESULTS. It can be interrupted and continued at any time, with
the same file. It ends when there are 1,000 faults in the file, or at the first piece that does not
pass; everything that piece left behind is then beside the file, in a directory with its seed.
Without the address of a broker of Kafka it leaves out what needs one.

Variables: FAULTS sets another number of faults, PIECE the faults of a piece (30), and MINUTES the
time after which no further piece is begun.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
BROKEN: Final = sorted((ROOT / "examples" / "broken").glob("[!_]*.py"))
GOOD: Final = ("count_per_key", "with_state", "word_count")
ENGINES: Final = ("resident", "epochs")
FILES: Final = "orders to files"
IN_PLACE: Final = "values changed in place"
IN_PLACE_ROCKSDB: Final = "values changed in place, RocksDB"
CHANGED_IN_PLACE: Final = "tests/torture/changed_in_place.py"
KAFKA: Final = "Kafka to Kafka"
#: events per fault, so that records flow when it strikes
EVENTS: Final = 40
#: these depend on the order in which the sources deliver; --verify checks them nevertheless
UNSTABLE: Final = (
    *("--ignore", "stock to files", "--ignore", "stock to Kafka"),
    *("--ignore", "files in {run}/output/batches"),
)
SHOP: Final = ("--disorder", "--duplicates", "0.05")
#: one undisturbed run for each piece: a job that is not deterministic would not pass
#: other work may share the machine, so a checkpoint may take long
DRAWN: Final = ("--calm", "1", "--patience", "400")
#: by program: more options of the torture
OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    FILES: UNSTABLE,
    KAFKA: UNSTABLE,
    IN_PLACE: (),
    IN_PLACE_ROCKSDB: ("-D", "state.backend.type=rocksdb"),
}
#: a Spark that is started after each fault of the driver; it halves the processor time of a start
QUICK_START: Final = (
    *("-D", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    *("-D", "spark.ui.enabled=false"),
)

Piece = Mapping[str, Any]


class Result(NamedTuple):
    """What came of one torture."""

    code: int
    seconds: float
    report: dict[str, Any]


def tortured(options: Sequence[str], program: Sequence[str], kept: Path | None = None) -> Result:
    """Torture a program; if it does not pass, what its runs left behind is ``kept`` there."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        place = Path(folder, "report")
        command = [sys.executable, "-m", "holdfast", "torture", "--report", str(place)]
        code = subprocess.run([*command, *options, *program], cwd=ROOT, check=False).returncode
        written = place / "report.json"
        report = json.loads(written.read_bytes()) if written.exists() else {}
        if code and kept is not None and place.exists():
            shutil.move(place, kept)
    return Result(code, time.monotonic() - began, report)


# The examples


def row(name: str, result: Result) -> str:
    """Return a line of the table."""
    kinds = result.report.get("by_kind", {})
    faults = _kinds(kinds)
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
    good = {name: [f"examples/{name}.py"] for name in GOOD}
    for name, program in {**good, IN_PLACE: [CHANGED_IN_PLACE, "counts", "1000"]}.items():
        result = tortured(("--faults", faults, "--seed", "1"), program)
        rows.append(row(name, result))
        if result.code != 0:
            wrong.append(f"{name} is good, and did not pass")
    print("| program | faults | kinds | time | exit code |")
    print("| --- | --- | --- | --- | --- |")
    print("\n".join([*rows, *wrong]))
    return 1 if wrong else 0


# The long run


def long(path: Path, brokers: Sequence[str]) -> int:
    """Torture the order system and a job that changes values of state in place, in pieces.

    The order system reads its generator and writes files, and reads and writes Kafka. From files it
    also verifies its results itself.
    """
    wanted = int(os.environ.get("FAULTS", "1000"))
    size = int(os.environ.get("PIECE", "30"))
    end = time.monotonic() + 60 * float(os.environ.get("MINUTES", "inf"))
    pieces = read_pieces(path)
    programs = (FILES, IN_PLACE, IN_PLACE_ROCKSDB, *((KAFKA,) if brokers else ()))
    while sum(map(faults_of, pieces)) < wanted and time.monotonic() < end:
        program, engine = next_of(pieces, programs)
        seed = 1 + max((piece["seed"] for piece in pieces), default=0)
        kept = path.with_name(f"{path.stem}-seed-{seed}")
        made = piece_of(program, engine, seed, size, brokers, kept)
        with path.open("a") as file:
            file.write(json.dumps(made) + "\n")
        pieces.append(made)
        if not passed(made):
            break
    return summary(pieces)


def next_of(pieces: Sequence[Piece], programs: Sequence[str]) -> tuple[str, str]:
    """Return the program and the engine that have the fewest faults so far."""
    counts: Counter[tuple[str, str]] = Counter()
    for piece in pieces:
        counts[piece["program"], piece["engine"]] += faults_of(piece)
    return min(itertools.product(programs, ENGINES), key=lambda pair: counts[pair])


def piece_of(
    program: str, engine: str, seed: int, faults: int, brokers: Sequence[str], kept: Path
) -> Piece:
    """Torture a program on an engine; returns the line of the results."""
    drawn = ("--faults", str(faults), "--seed", str(seed), "--engine", engine)
    options = (*drawn, *OPTIONS[program])
    arguments = arguments_of(program, faults, brokers)
    result = tortured((*options, *DRAWN, *QUICK_START), arguments, kept)
    report = result.report
    return {
        "program": program,
        "engine": engine,
        "seed": seed,
        "asked": faults,
        "faults": report.get("by_kind", {}),
        "compared": {
            sink["name"]: sink["found"] for sink in report.get("sinks", ()) if not sink["unread"]
        },
        "missing": sum(sink["missing"] for sink in report.get("sinks", ())),
        "surplus": sum(sink["surplus"] for sink in report.get("sinks", ())),
        "findings": report.get("findings", []),
        "exit_code": result.code,
        "seconds": round(result.seconds),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - result.seconds)),
        "commit": _commit(),
    }


def arguments_of(program: str, faults: int, brokers: Sequence[str]) -> Sequence[str]:
    """Return the command line of a program that has enough events for so many faults."""
    events = str(max(4000, EVENTS * faults))
    if program in (IN_PLACE, IN_PLACE_ROCKSDB):
        return (CHANGED_IN_PLACE, "counts", events)
    shop = ("-m", "examples.orders", *SHOP, "--events", events)
    job = (*shop, "--parallelism", "2", "--directory", "{run}")
    if program == FILES:
        return (*job, "--verify")
    at = ("--broker", brokers[0], "--topic", f"torture-{time.time_ns()}")
    subprocess.run([sys.executable, *shop, *at, "--produce"], cwd=ROOT, check=True)
    return (*job, *at, "--source", "kafka", "--to-kafka")


def _commit() -> str:
    """Return the commit that is tortured, with a mark if files have changed since."""
    git = ["git", "describe", "--always", "--dirty=+changes", "--exclude=*"]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


# What was collected


def read_pieces(path: Path) -> list[Piece]:
    """Return the pieces of a file; none if it does not exist."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def faults_of(piece: Piece) -> int:
    """Return how many faults a piece has."""
    return sum(piece["faults"].values())


def passed(piece: Piece) -> bool:
    """Return whether all faults were carried out, and nothing differs."""
    return bool(piece["exit_code"] == 0 and faults_of(piece) >= piece["asked"])


def summary(pieces: Sequence[Piece]) -> int:
    """Print a table of pieces, and those that did not pass; returns the exit code."""
    print("| program | engine | pieces | seeds | faults | records compared | time |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for line in rows_of(pieces):
        print(line)
    kinds: Counter[str] = Counter()
    for piece in pieces:
        kinds.update(piece["faults"])
    print(f"\n{kinds.total()} faults: {_kinds(dict(kinds.most_common()))}")
    print(f"commits: {', '.join(sorted({piece['commit'] for piece in pieces}))}")
    wrong = [piece for piece in pieces if not passed(piece)]
    for piece in wrong:
        print(f"NOT PASSED: {json.dumps(piece)}")
    return 1 if wrong else 0


def rows_of(pieces: Iterable[Piece]) -> Iterator[str]:
    """Yield a line for each program and engine."""
    grouped: dict[tuple[str, str], list[Piece]] = {}
    for piece in pieces:
        grouped.setdefault((piece["program"], piece["engine"]), []).append(piece)
    for (program, engine), found in sorted(grouped.items()):
        faults, seconds = sum(map(faults_of, found)), sum(piece["seconds"] for piece in found)
        records = sum(sum(piece["compared"].values()) for piece in found)
        cells = (len(found), _ranges([piece["seed"] for piece in found]), faults, f"{records:,}")
        told = " | ".join(map(str, cells))
        spent = f"{seconds / 60:.0f} min, {seconds / max(1, faults):.1f} s per fault"
        yield f"| {program} | {engine} | {told} | {spent} |"


def _ranges(seeds: Iterable[int]) -> str:
    """Return numbers in order, with the first and the last of those that follow each other."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["examples"]:
            raise SystemExit(examples())
        case ["long", results, *given]:
            raise SystemExit(long(Path(results), given))
        case ["sum", *results]:
            raise SystemExit(
                summary([piece for name in results for piece in read_pieces(Path(name))])
            )
        case _:
            raise SystemExit(__doc__)
