"""Faults on hosts: one job, a random series of them from a seed, and a check of every count.

python -m tests.spark.host_faults                          10 faults
python -m tests.spark.host_faults --faults 200 --seed 1    a long series
python -m tests.spark.host_faults --only "host stopped"    faults of one kind
python -m tests.spark.host_faults --engine epochs          on the other engine
python -m tests.spark.host_faults --spot --minutes 30      hosts come and go, the job is rescaled

The job runs until all faults were survived, or time is up (``--minutes``), and then to its end. The
same seed, with the same number of faults, gives the same faults in the same order.

A long series can be run in pieces, with a file of results: repeat the first command until all
faults were survived. Each piece has the next seed.

python -m tests.spark.host_faults --faults 200 --minutes 8 --results build/faults.jsonl
python -m tests.spark.host_faults --total build/faults.jsonl
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.hosts import why_not
from tests.jvm import start_quickly
from tests.spark import spot_hosts
from tests.spark.fault_field import Field, Shape, field
from tests.spark.fault_kinds import FAULTS, Fault
from tests.spark.fault_records import Outcome, Record, continued, read, summary, total, write

__all__ = ["Outcome", "series"]

#: is told what is about to happen
Tell = Callable[[str], None]


def suffer(field: Field, fault: Fault) -> Outcome:
    """Let a fault happen while the job is at work, and wait until it is survived."""
    heal = fault.strike(field)
    began = time.time()
    if fault.lasts is not None:
        time.sleep(field.choose.uniform(*fault.lasts))
        heal()
    if fault.announces:
        began = time.time()
    results = field.results_since(began)
    if fault.lasts is None:
        heal()
    return Outcome(fault.name, results - began, field.new_restarts())


def series(
    field: Field,
    faults: int,
    kinds: tuple[Fault, ...] = FAULTS,
    seconds: float = math.inf,
    tell: Tell = print,
) -> Iterator[Outcome]:
    """Let faults happen, one after the other, until time is up; the seed says which ones."""
    ends = time.monotonic() + seconds
    weights = [fault.weight for fault in kinds]
    for fault in field.choose.choices(kinds, weights, k=faults):
        if time.monotonic() > ends:
            return
        field.results_since(time.time())
        time.sleep(field.choose.uniform(0.0, 0.6))  # anywhere between two checkpoints
        tell(fault.name)
        yield suffer(field, fault)


def spot_series(field: Field, seconds: float, tell: Tell = print) -> Iterator[Outcome]:
    """Let hosts come and go, for so long."""
    for change in spot_hosts.changes(field, seconds, tell):
        yield Outcome(change.name, change.seconds, field.new_restarts())


def main() -> int:
    """Run a series; the exit code is 1 if a count was not exact, or the job did not survive."""
    given = _arguments()
    if given.total:
        records = read(given.total)
        print(total(records))
        return 1 if any(record.problems for record in records) else 0
    missing = why_not()
    if missing:
        print(f"no hosts: {missing}", file=sys.stderr)
        return 1
    if given.results:
        given.seed, given.faults = continued(read(given.results), given.seed, given.faults)
    if given.faults <= 0 and not given.spot:
        print("all faults were survived", file=sys.stderr)
        return 0
    start_quickly()
    logs = given.logs or Path(tempfile.mkdtemp(prefix="host-faults-", dir="/var/tmp"))
    logs.mkdir(parents=True, exist_ok=True)
    record = _run(logs, given)
    if given.results:
        write(given.results, record)
    print("\n".join(["", summary(record.outcomes), *record.problems, str(record)]), flush=True)
    if record.problems:
        again = f"--engine {given.engine} --faults {given.faults} --seed {given.seed}"
        print(f"logs: {logs}; again: python -m tests.spark.host_faults {again}")
    elif not given.logs:
        shutil.rmtree(logs)
    return 1 if record.problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="for no longer than that")
    parser.add_argument("--only", default="", help="a regular expression: faults of these names")
    parser.add_argument(
        "--spot", action="store_true", help="hosts come and go; --minutes is needed"
    )
    parser.add_argument("--logs", type=Path, help="where to keep the logs")
    parser.add_argument(
        "--results",
        type=Path,
        help="a file to which the figures are appended; the faults in it count, and the seed is "
        "that of the last series plus one",
    )
    parser.add_argument("--total", type=Path, help="print the figures of such a file, and end")
    engine = os.environ.get("HOLDFAST_ENGINE", "resident")
    parser.add_argument("--engine", choices=("resident", "epochs"), default=engine)
    given = parser.parse_args()
    if given.spot and given.minutes == math.inf:
        parser.error("--spot needs --minutes")
    if given.spot and given.engine != "resident":
        parser.error("--spot needs the resident engine: the other one has no slots to lose")
    return given


def _run(logs: Path, given: argparse.Namespace) -> Record:
    began = time.monotonic()
    record = Record(
        given.seed, given.engine, time.strftime("%Y-%m-%d %H:%M", time.gmtime()), given.spot
    )

    def tell(name: str) -> None:
        of = "" if given.spot else f" of {given.faults}"
        number = f"{len(record.outcomes) + 1:3}{of}"
        print(f"{time.strftime('%H:%M:%S')} {number}: {name:45} ", end="", flush=True)

    shape = replace(spot_hosts.SHAPE if given.spot else Shape(), engine=given.engine)
    with field(logs, given.seed, shape) as running:
        try:
            for outcome in _faults(running, given, tell):
                record.outcomes.append(outcome)
                print(outcome, flush=True)
            record.problems = running.finish()
        except AssertionError as error:
            record.problems = [str(error)]
        record.numbers = running.ledger.total
        record.fewer, record.more = spot_hosts.rescales(running)
    record.seconds = round(time.monotonic() - began, 1)
    return record


def _faults(field: Field, given: argparse.Namespace, tell: Tell) -> Iterator[Outcome]:
    seconds = given.minutes * 60
    if given.spot:
        return spot_series(field, seconds, tell)
    kinds = tuple(fault for fault in FAULTS if re.search(given.only, fault.name))
    return series(field, given.faults, kinds, seconds, tell)


if __name__ == "__main__":
    sys.exit(main())
