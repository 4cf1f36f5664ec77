"""What a killed process leaves of its hosts is removed by the next one that makes some."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from holdfast.torture.processes import processes
from tests.hosts import ROOT, folders, hosts, namespaces, why_not
from tests.spark.witness import until

#: makes hosts with a process on one, says which process that is, and is killed
KILLED = """
import os, signal
from tests.hosts import Hosts
made = Hosts(2)
started = made.start(1, ["sleep", "600"])
while started.pid not in made.processes(1):
    pass
print(started.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_hosts_of_a_killed_process_are_swept() -> None:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT, stdout=subprocess.PIPE) as run:
        output, _ = run.communicate(timeout=600)
    assert run.returncode == -signal.SIGKILL
    assert len(namespaces(run.pid)) == 3, "two hosts and the switch"
    assert len(folders(run.pid)) == 1
    with hosts(1):
        assert namespaces(run.pid) == []
        assert folders(run.pid) == []
        assert len(namespaces(os.getpid())) == 2, "those of a live process stay"
    until(lambda: int(output) not in processes())
