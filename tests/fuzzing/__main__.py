"""Fuzz the files of savepoints and checkpoints.

python -m tests.fuzzing                            1,000 mutants
python -m tests.fuzzing --mutants 100000 --seed 7  the long run: mutants 7 to 100,006
python -m tests.fuzzing --only 1234                one mutant, in this process, for a debugger
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzzing.campaign import report, try_out
from tests.fuzzing.trial import Laboratory, Result


def main() -> int:
    """Run; the exit code is 1 if something forbidden happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.only is not None:
        with tempfile.TemporaryDirectory() as scratch:
            tempfile.tempdir = os.environ["HOLDFAST_RUNTIME_DIR"] = scratch
            print(Laboratory(Path(scratch)).try_out(given.only))
        return 0
    results: list[Result] = []
    started = told = time.monotonic()
    for result in try_out(range(given.seed, given.seed + given.mutants), given.processes):
        results.append(result)
        if not result.allowed or time.monotonic() - told > 10:
            told = time.monotonic()
            rate = len(results) / (told - started)
            last = "" if result.allowed else f"; {result}"
            print(f"{len(results):,} of {given.mutants:,}, {rate:.0f}/s{last}", file=sys.stderr)
    return 0 if report(results, print) else 1


if __name__ == "__main__":
    sys.exit(main())
