"""A Kubernetes of one node: its programs are processes in the namespaces of the node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from scripts.kubernetes.building import OWN, PAUSE, PLACE, ROOT

__all__ = ["ADDRESS", "Cluster", "until"]

#: of the node (see node.sh), of pods and of services
ADDRESS: Final = "10.88.0.2"
PODS: Final = "10.244.0.0/16"
SERVICES: Final = "10.96.0.0/16"
SERVER: Final = f"https://{ADDRESS}:6443"
LOGS: Final = PLACE / "logs"
#: where in the node the settings are, and the certificates that the API server makes for itself
CGROUPS: Final = Path("/sys/fs/cgroup")
SETTINGS: Final = "/etc/kubernetes"
AUTHORITY: Final = f"{SETTINGS}/pki/apiserver.crt"
KEY: Final = f"{SETTINGS}/accounts.key"
#: who asks the API server, as which user of which group
USERS: Final = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "kubelet": ("system:node:node", "system:nodes"),
}

CONTAINERD: Final = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # root in a container or a virtual machine may not be allowed to make a process harder to kill
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""

NETWORK: Final = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}

KUBELET: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    # nobody but the API server reaches it: the network has no way in
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "clusterDNS": [ADDRESS],
    "clusterDomain": "cluster.local",
    "resolvConf": f"{SETTINGS}/resolv.conf",
    # the disk is that of this machine
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi"},
    "imageGCHighThresholdPercent": 100,
}

NAMES: Final = f"""
.:53 {{
    bind {ADDRESS}
    errors
    kubernetes cluster.local {{
        kubeconfig {SETTINGS}/admin.json
    }}
}}
"""

#: the programs, in the order in which they start
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "etcd": ("etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync"),
    "apiserver": (
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--cert-dir={SETTINGS}/pki",
        f"--token-auth-file={SETTINGS}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={KEY}",
        f"--service-account-signing-key-file={KEY}",
    ),
    "containerd": ("containerd",),
    "controller-manager": (
        "kube-controller-manager",
        f"--kubeconfig={SETTINGS}/controller-manager.json",
        f"--root-ca-file={AUTHORITY}",
        f"--service-account-private-key-file={KEY}",
        "--use-service-account-credentials",
        "--leader-elect=false",
    ),
    "scheduler": (
        "kube-scheduler",
        f"--kubeconfig={SETTINGS}/scheduler.json",
        "--leader-elect=false",
    ),
    "kubelet": (
        "kubelet",
        f"--kubeconfig={SETTINGS}/kubelet.json",
        f"--config={SETTINGS}/kubelet-config.json",
        f"--node-ip={ADDRESS}",
        "--hostname-override=node",
    ),
    "proxy": (
        "kube-proxy",
        f"--kubeconfig={SETTINGS}/proxy.json",
        "--proxy-mode=nftables",
        f"--cluster-cidr={PODS}",
        "--hostname-override=node",
        # NB: they belong to the whole machine
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ),
    "coredns": ("coredns", "-conf", f"{SETTINGS}/Corefile"),
}


def until(
    condition: Callable[[], object], what: str, patience: float = 300, pause: float = 0.5
) -> None:
    """Wait until something holds, and ask after each pause; both times are in seconds.

    Raises:
        TimeoutError: when it does not, for so many seconds.
    """
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not after {patience:.0f} seconds; see {LOGS}")
        time.sleep(pause)


class Cluster:
    """It runs from the start of the ``with`` to its end; nothing of it stays but its logs."""

    def __init__(self) -> None:
        self._root = PLACE / "node"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pid = 0

    def __enter__(self) -> Self:
        """Start it, and wait until the node is ready."""
        _remove_cgroups()
        self._write_settings()
        try:
            self._start_node()
            self._start_kubernetes()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes of the node, and remove the cgroups of its pods."""
        for process in self._processes:
            process.kill()  # the first one takes all those of the node with it
        for process in self._processes:
            process.wait()
        until(_remove_cgroups_if_free, "the pods have ended", 60)

    def command(self, *command: str, only_network: bool = False) -> list[str]:
        """Return what runs a command in the node; or only in its network, but in our files."""
        spaces = ["--net"] if only_network else ["--mount", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", f"--target={self._pid}", *spaces, "--", *command]

    def start(self, name: str, *command: str, only_network: bool = False) -> None:
        """Start a command that runs as long as the node; its log is ``<name>.log``."""
        where = self.command(*command, only_network=only_network)
        self._spawn(name, where)

    def run(self, *command: str, text: str | None = None, only_network: bool = False) -> str:
        """Run a command in the node, and return what it prints.

        Raises:
            RuntimeError: when it fails.
        """
        where = self.command(*command, only_network=only_network)
        done = subprocess.run(where, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl as an administrator."""
        return self.run("kubectl", f"--kubeconfig={SETTINGS}/admin.json", *arguments, text=text)

    def succeeds(self, *arguments: str) -> bool:
        """Return whether kubectl does."""
        try:
            return bool(self.kubectl(*arguments))
        except RuntimeError:
            return False

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        with (LOGS / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self._processes.append(started)

    def _start_node(self) -> None:
        spaces = ("--mount", "--uts", "--ipc", "--pid", "--net", "--fork", "--kill-child")
        # NB: the node ends with us, however we end
        bound = ("setpriv", "--pdeathsig", "KILL", "unshare", *spaces)
        self._spawn("node", (*bound, str(OWN / "node.sh"), str(self._root)))
        outer = self._processes[0].pid
        children = Path(f"/proc/{outer}/task/{outer}/children")
        until(lambda: children.read_text().strip(), "the node is there", 10)
        self._pid = int(children.read_text())
        name = Path(f"/proc/{self._pid}/comm")
        until(lambda: name.read_text().strip() == "tini", "the node has its root", 10)

    def _start_kubernetes(self) -> None:
        first = ("etcd", "apiserver", "containerd")
        for name in first:
            self.start(name, *COMMANDS[name])
        until(lambda: self.succeeds("get", "--raw=/readyz"), "the API server is ready")
        socket = Path(f"/proc/{self._pid}/root/run/containerd/containerd.sock")
        until(socket.exists, "containerd is ready")
        for image in ("pause", "orders"):
            self.run("ctr", "--namespace=k8s.io", "images", "import", f"/var/tmp/{image}.tar")
        for name, command in COMMANDS.items():
            if name not in first:
                self.start(name, *command)
        until(lambda: self.succeeds("get", "node", "node"), "the node is registered")
        self.kubectl("wait", "--for=condition=Ready", "node/node", "--timeout=120s")
        account = ("get", "serviceaccount", "default")
        until(lambda: self.succeeds(*account), "there are service accounts")

    def _write_settings(self) -> None:
        shutil.rmtree(LOGS, ignore_errors=True)
        LOGS.mkdir(parents=True)
        for each in ("etcd", "kubelet", "containerd", "cni"):
            shutil.rmtree(self._root / "var/lib" / each, ignore_errors=True)
        for each in ("pods", "containers"):
            shutil.rmtree(self._root / "var/log" / each, ignore_errors=True)
        programs = self._root / "usr/local/bin"
        for program in (PLACE / "bin").iterdir():
            (programs / program.name).unlink(missing_ok=True)
            os.link(program, programs / program.name)
        settings = self._root / SETTINGS.lstrip("/")
        shutil.rmtree(settings, ignore_errors=True)
        settings.mkdir()
        # NB: these tokens are secrets of a cluster that nobody else can reach
        tokens = [f'{name}-token,{user},{name},"{group}"' for name, (user, group) in USERS.items()]
        (settings / "tokens.csv").write_text("\n".join(tokens) + "\n")
        for name in USERS:
            (settings / f"{name}.json").write_text(json.dumps(_access(name)))
        (settings / "kubelet-config.json").write_text(json.dumps(KUBELET))
        (settings / "resolv.conf").write_text("")
        (settings / "Corefile").write_text(NAMES)
        key = ("openssl", "genrsa", "-out", str(self._root / KEY.lstrip("/")), "2048")
        subprocess.run(key, check=True, capture_output=True)
        (self._root / "etc/containerd").mkdir(exist_ok=True)
        (self._root / "etc/containerd/config.toml").write_text(CONTAINERD)
        (self._root / "etc/cni/net.d").mkdir(parents=True, exist_ok=True)
        (self._root / "etc/cni/net.d/pods.conflist").write_text(json.dumps(NETWORK))
        (self._root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} node\n")


def _access(name: str) -> dict[str, object]:
    """Return what kubectl and others call a kubeconfig."""
    cluster = {"server": SERVER, "certificate-authority": AUTHORITY}
    context = {"cluster": "node", "user": name}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "node", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": f"{name}-token"}}],
        "contexts": [{"name": "node", "context": context}],
        "current-context": "node",
    }


def _remove_cgroups() -> None:
    """Remove what the kubelet of a killed cluster has left.

    Raises:
        OSError: when there are processes in them, such as those of another kubelet.
    """
    for root in (*CGROUPS.glob("kubepods"), *CGROUPS.glob("*/kubepods")):
        for folder, _, _ in os.walk(root, topdown=False):
            os.rmdir(folder)


def _remove_cgroups_if_free() -> bool:
    with suppress(OSError):
        _remove_cgroups()
        return True
    return False
