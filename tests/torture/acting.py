"""Acts as the process of a tortured program, without Spark: ``python -m tests.torture.acting``.

It reads numbers, appends them to a file, and takes a checkpoint now and then: a file with how many
numbers were read. Started again, it goes on from there. Its first argument says what it does wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from holdfast.torture.order import JobNote, Order, read_order, write_note
from holdfast.torture.pacing import Pace

NUMBERS = 60
#: numbers between two checkpoints
EVERY = 2


def main(order: Order) -> None:
    """Act as told."""
    (mistake,) = order.arguments
    if mistake == "fails":
        raise SystemExit("it is broken")
    if mistake != "starts no job":
        write_note(order.path, 1, JobNote("acting", 2, ()))
    checkpoints = order.path / "checkpoints" / "acting"
    saved = sorted(checkpoints.glob("chk-*/_metadata"), key=_id)
    pace = Pace(order.directory, "source-0")
    pace.count = int(saved[-1].read_text()) if saved else 0
    if mistake == "fails after a restart" and saved:
        raise SystemExit("it does not recover")
    out = order.output / "numbers"
    if out.exists():
        lines = out.read_text().splitlines(keepends=True)
        draft = out.with_name(".draft")  # a kill may come at any time
        kept = "".join(lines[: pace.count])
        draft.write_text(f"{kept}{kept}" if mistake == "writes again" else kept)
        draft.replace(out)
    number = max((_id(path / "_metadata") for path in checkpoints.glob("chk-*")), default=0)
    while pace.count < NUMBERS or pace.held:
        room = pace.room()
        if pace.count < NUMBERS and (room is None or room > 0):
            pace.take(1)
            with out.open("a") as file:
                extra = f" {time.time_ns()}" if mistake == "not deterministic" else ""
                file.write(f"{pace.count}{extra}\n")
        else:
            time.sleep(0.002)
        idle = pace.count == NUMBERS
        if pace.count % EVERY == 0 or idle:
            number += 1
            path = checkpoints / f"chk-{number}"
            path.mkdir(parents=True)
            (path / "draft").write_text(str(pace.count))
            (path / "draft").rename(path / "_metadata")
    pace.note(at_once=True)


def _id(metadata: Path) -> int:
    return int(metadata.parent.name.removeprefix("chk-"))


if __name__ == "__main__":
    main(read_order(sys.argv[1]))
