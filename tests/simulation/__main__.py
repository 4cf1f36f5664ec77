"""Live through a seed and tell its story: ``python -m tests.simulation 1234``.

Several seeds, or a range like ``0-1999``, are counted: what happened how often, and which failed.
With ``--stories`` all their stories are told.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from tests.simulation.life import SeedFailed, simulate


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="+", help="a number, or a range like 0-1999")
    parser.add_argument("--stories", action="store_true", help="tell the story of each")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    seeds = [seed for text in arguments.seeds for seed in _range(text)]
    return live_through(seeds, arguments.stories or len(seeds) == 1)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def live_through(seeds: list[int], stories: bool) -> int:
    counts: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        try:
            world = simulate(seed)
        except SeedFailed as failure:
            failed += 1
            print(failure if stories else f"seed {seed}: {failure.cause!r:.200}")
            continue
        counts += world.counts
        if stories:
            print(f"seed {seed}", *world.story, sep="\n")
    if not stories:
        print(*(f"{times:8} {what}" for what, times in sorted(counts.items())), sep="\n")
        print(f"{len(seeds)} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
