"""Hosts on one machine: each has its own network, ``/tmp`` and host name.

They are network namespaces on a bridge that is in a namespace of its own, so nothing leaves the
machine. It takes root, Linux and iproute2; `why_not` says what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: what a process on a host does first: its arguments are the folder of the host, its name, the root
#: of this repository, and the command
_MOVE_IN = """
set -e
folder=$1 name=$2 root=$3; shift 3
hostname "$name"
mount --bind "$folder/../hosts" /etc/hosts
case $root in /tmp/*)
  mkdir -p "$folder$root"; mount --bind "$root" "$folder$root";;
esac
mount --rbind "$folder/tmp" /tmp
cd "$root"
exec "$@"
"""


def why_not() -> str:
    """Return why there can be no hosts here; empty if there can."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "hosts of their own need Linux with iproute2"
    if os.geteuid() != 0:
        return "hosts of their own need root"
    name = f"hf{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made.stderr.strip()


class Hosts:
    """Some hosts, numbered from 1; host k is called ``hk`` and has the address 10.77.0.k."""

    def __init__(self, number: int) -> None:
        """Make them."""
        self._prefix = f"hf{os.getpid()}"
        self._started: list[subprocess.Popen[str]] = []
        # NB: not in /tmp, which each host has for itself
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-hosts-", dir="/var/tmp"))
        self._numbers = range(1, number + 1)
        lines = ["127.0.0.1 localhost", *(f"{self.address(k)} h{k}" for k in self._numbers)]
        (self._folder / "hosts").write_text("\n".join([*lines, ""]))
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        for k in self._numbers:
            self._add(k)

    def _add(self, k: int) -> None:
        space, cable = self._space(k), f"p{k}"
        _ip("netns", "add", space)
        ends = ["type", "veth", "peer", "name", cable, "netns", self._switch]
        _ip("link", "add", "eth0", "netns", space, *ends)
        _ip("-n", self._switch, "link", "set", cable, "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{self.address(k)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "set", "eth0", "up")
        self.temporary(k).mkdir(parents=True)
        self.temporary(k).chmod(0o1777)

    @staticmethod
    def address(k: int) -> str:
        """Return the address of a host."""
        return f"10.77.0.{k}"

    def temporary(self, k: int) -> Path:
        """Return where the ``/tmp`` of a host is, seen from outside."""
        return self._folder / f"h{k}" / "tmp"

    @property
    def common(self) -> Path:
        """A directory that all hosts see, for settings that each would have a copy of."""
        return self._folder

    def start(
        self,
        k: int,
        command: Sequence[str],
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command on a host; without a log, what it prints can be read from it."""
        move_in = ["bash", "-c", _MOVE_IN, "_", str(self._folder / f"h{k}"), f"h{k}", str(ROOT)]
        own = ["unshare", "--mount", "--uts", "--propagation", "private", *move_in]
        variables = {"SPARK_LOCAL_IP": self.address(k), "HOME": "/tmp", **(environment or {})}
        with ExitStack() as until_started:
            output = subprocess.PIPE if log is None else until_started.enter_context(log.open("w"))
            process = subprocess.Popen(
                ["ip", "netns", "exec", self._space(k), *own, *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | variables,
            )
        self._started.append(process)
        return process

    def kill(self, k: int, pattern: str) -> None:
        """Kill the processes of a host whose command line matches; there must be one."""
        commands = {pid: _command_of(pid) for pid in _processes_in(self._space(k))}
        found = [pid for pid, command in commands.items() if re.search(pattern, command)]
        assert found, f"no process of h{k} matches {pattern!r}: {commands}"
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Remove them; whatever still runs there is killed."""
        for space in (*map(self._space, self._numbers), self._switch):
            for pid in _processes_in(space):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], check=False)
        for started in self._started:
            started.wait()
            if started.stdout is not None:
                started.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _space(self, k: int) -> str:
        return f"{self._prefix}-{k}"

    @property
    def _switch(self) -> str:
        return f"{self._prefix}-switch"


def _processes_in(space: str) -> list[int]:
    command = ["ip", "netns", "pids", space]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def _command_of(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def hosts(number: int) -> Iterator[Hosts]:
    """So many hosts, until the end of the block."""
    made = Hosts(number)
    try:
        yield made
    finally:
        made.close()
