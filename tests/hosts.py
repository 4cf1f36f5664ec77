"""Hosts on one machine: each has its own network, ``/tmp`` and host name.

They are network namespaces on a bridge that is in a namespace of its own, so nothing leaves the
machine. It takes root, Linux and iproute2; `why_not` says what is missing.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
ROOT = Path(__file__).parents[1]
_FOLDERS = Path("/var/tmp")
_FOLDER = "holdfast-hosts-"
#: the namespaces of a process, and its folder, bear its id
_OURS = re.compile(r"hf(\d+)-(?:\d+|switch)|holdfast-hosts-(\d+)-\w+")
_CLONE_NEWNET = 0x40000000

#: runs a command on a host: on HOST COMMAND...
_ON = """#!/bin/bash
set -e
export HOME=/tmp SPARK_LOCAL_IP=10.77.0.${{1#h}} JAVA_HOME='{java}'
exec ip netns exec {prefix}-${{1#h}} unshare --mount --uts --propagation private \\
  bash '{folder}/move-in' '{folder}' '{root}' "$@"
"""

#: what a process on a host does first
_MOVE_IN = """
set -e
folder=$1 root=$2 name=$3; shift 3
hostname "$name"
mount --bind "$folder/hosts" /etc/hosts
case $root in /tmp/*)
  mkdir -p "$folder/$name$root"; mount --bind "$root" "$folder/$name$root";;
esac
mount --rbind "$folder/$name/tmp" /tmp
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
    """Some hosts, numbered from 1; host k is called ``hk`` and has the address 10.77.0.k.

    Attributes:
        on: a program that runs a command on a host: ``on hk COMMAND...``.
    """

    def __init__(self, number: int) -> None:
        """Make them; what a killed process has left of its own is removed."""
        sweep()
        self._prefix = f"hf{os.getpid()}"
        self._started: list[subprocess.Popen[str]] = []
        # NB: not in /tmp, which each host has for itself
        name = f"{_FOLDER}{os.getpid()}-"
        self._folder = Path(tempfile.mkdtemp(prefix=name, dir=_FOLDERS))
        self._numbers = range(1, number + 1)
        lines = ["127.0.0.1 localhost", *(f"{self.address(k)} h{k}" for k in self._numbers)]
        (self._folder / "hosts").write_text("\n".join([*lines, ""]))
        (self._folder / "move-in").write_text(_MOVE_IN)
        java = os.environ.get("JAVA_HOME", "")
        self.on = self._folder / "on"
        self.on.write_text(
            _ON.format(java=java, prefix=self._prefix, folder=self._folder, root=ROOT)
        )
        self.on.chmod(0o700)
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
        with ExitStack() as until_started:
            output = subprocess.PIPE if log is None else until_started.enter_context(log.open("w"))
            process = subprocess.Popen(
                [str(self.on), f"h{k}", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | dict(environment or {}),
            )
        self._started.append(process)
        return process

    def kill(self, k: int, pattern: str) -> None:
        """Kill the processes of a host whose command line matches; there must be one."""
        commands = {pid: _command_of(pid) for pid in self.processes(k)}
        found = [pid for pid, command in commands.items() if re.search(pattern, command)]
        assert found, f"no process of h{k} matches {pattern!r}: {commands}"
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, k: int) -> list[int]:
        """Return the ids of all processes on a host."""
        return _processes(self._space(k))

    def signal(self, k: int, number: signal.Signals) -> None:
        """Send a signal to all processes on a host."""
        for process in self.processes(k):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def plug(self, k: int, in_: bool) -> None:
        """Plug the cable of a host in, or pull it: nobody is told, packets are just gone."""
        _ip("-n", self._switch, "link", "set", f"p{k}", "up" if in_ else "down")

    def slow_down(self, k: int) -> str:
        """Make the network of a host slow, both ways; return how: by netem, if the kernel has it.

        Without it, a narrow pass with a short queue: packets wait up to a fifth of a second, and
        those that find it full are lost.
        """
        if self._shape(k, "add", "netem", "delay", "100ms", "50ms", "loss", "3%"):
            return "netem"
        narrow = ("tbf", "rate", "1mbit", "burst", "4kb", "limit", "24kb")
        assert self._shape(k, "add", *narrow), "tc has neither netem nor tbf"
        return "tbf"

    def speed_up(self, k: int) -> None:
        """Undo `slow_down`."""
        self._shape(k, "del")

    def _shape(self, k: int, *what: str) -> bool:
        verb, *how = what
        ends = ((self._space(k), "eth0"), (self._switch, f"p{k}"))
        results = [
            subprocess.run(
                ["tc", "-n", space, "qdisc", verb, "dev", device, "root", *how],
                capture_output=True,
                check=False,
            )
            for space, device in ends
        ]
        return all(result.returncode == 0 for result in results)

    def listen(self, k: int, port: int) -> socket.socket:
        """Return a socket of this process that listens on a host."""
        return self.there(k, lambda: socket.create_server((self.address(k), port)))

    def there(self, k: int, call: Callable[[], _T]) -> _T:
        """Call a function of this process in the network of a host; so are threads it starts."""
        # a thread that moves there does not come back
        with ThreadPoolExecutor(1, initializer=self._move, initargs=(k,)) as thread:
            return thread.submit(call).result()

    def _move(self, k: int) -> None:
        with Path(f"/var/run/netns/{self._space(k)}").open() as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter the network of host {k}")

    def close(self) -> None:
        """Remove them; whatever still runs there is killed."""
        for space in (*map(self._space, self._numbers), self._switch):
            _remove(space)
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


def sweep() -> None:
    """Remove the hosts of processes that are gone: they were killed."""
    for space in namespaces():
        if _is_left(space):
            _remove(space)
    for folder in folders():
        if _is_left(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def namespaces(pid: int | None = None) -> list[str]:
    """Return the network namespaces of hosts, of all processes or of one."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [name for name in map(_first_word, listed.stdout.splitlines()) if _is_of(name, pid)]


def folders(pid: int | None = None) -> list[Path]:
    """Return the folders of hosts, of all processes or of one."""
    return [folder for folder in _FOLDERS.glob(f"{_FOLDER}*") if _is_of(folder.name, pid)]


def _first_word(line: str) -> str:
    return line.split()[0]


def _owner(name: str) -> int | None:
    """Return the id of the process that has made something of this name."""
    found = _OURS.fullmatch(name)
    return None if found is None else int(found[1] or found[2])


def _is_of(name: str, pid: int | None) -> bool:
    owner = _owner(name)
    return owner is not None and pid in (None, owner)


def _is_left(name: str) -> bool:
    return not Path(f"/proc/{_owner(name)}").exists()


def _processes(space: str) -> list[int]:
    found = subprocess.run(
        ["ip", "netns", "pids", space], capture_output=True, text=True, check=False
    )
    return [int(process) for process in found.stdout.split()]


def _remove(space: str) -> None:
    for process in _processes(space):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


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
