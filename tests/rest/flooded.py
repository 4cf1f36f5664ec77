"""A job behind a server, in a process that has few descriptors: what `test_flood` attacks.

Prints a line of JSON after each step, and waits for one on standard input before the next.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.rest.access.limits import Limits
from tests.serving import Client, LocalJob, checkpoints_in, counting, served

DESCRIPTORS = 512
#: what a job and the server need now and then, besides connections
OTHERS = 40


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)
    sys.stdin.readline()


def in_use() -> int:
    return len(os.listdir("/dev/fd"))


def allow(descriptors: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))


def main() -> None:
    allow(DESCRIPTORS)
    job = LocalJob(counting(checkpoints_in(Path(sys.argv[1]))))
    with job.run, served(job) as server:
        assert Client(server)("/overview").status == 200
        before = in_use()
        # NB: with one connection more than there may be, the job itself would have too few
        allow(before + Limits().connections + OTHERS)
        tell(url=server.url, token=server.token)
        while not job.run.finished:
            job.run.epoch(checkpoint=True)
        tell(records=sorted(job.run.records))
        deadline = time.monotonic() + 300
        while in_use() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        tell(left=max(0, in_use() - before))


if __name__ == "__main__":
    main()
