"""Builds what a node consists of: Kubernetes' programs, a Debian, and the image of the job."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["OWN", "PAUSE", "PLACE", "ROOT", "build", "build_image", "build_operator"]

ROOT: Final = Path(__file__).parents[2]
OWN: Final = Path(__file__).parent
PLACE: Final = ROOT / "build" / "kubernetes"
#: what is named by the manifests, and what containerd has each pod begin with
IMAGE: Final = "registry.example/orders:1"
PAUSE: Final = "registry.example/pause:1"

KUBERNETES: Final = "1.34.4"
#: the etcd whose client this Kubernetes has, and a CoreDNS that needs no newer parts of Kubernetes
OTHERS: Final = {"go.etcd.io/etcd/server/v3": "3.6.4", "github.com/coredns/coredns": "1.13.1"}
#: the operator for Spark, which needs older parts of Kubernetes than the API server
OPERATOR: Final = ("github.com/kubeflow/spark-operator/v2", "2.4.0")
PROGRAMS: Final = (
    *(f"k8s.io/kubernetes/cmd/kube-{name}" for name in ("apiserver", "controller-manager")),
    *(f"k8s.io/kubernetes/cmd/kube-{name}" for name in ("scheduler", "proxy")),
    "k8s.io/kubernetes/cmd/kubelet",
    "k8s.io/kubernetes/cmd/kubectl",
    "node/coredns",
    "node/etcd",
    "node/pause",
)
#: programs of our own: CoreDNS with nothing but the names of services, etcd, and what keeps the
#: namespaces of a pod
SOURCES: Final = {
    "coredns": """
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
""",
    "etcd": """
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
""",
    "pause": """
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
""",
}

SUITE: Final = "bookworm"
#: of the stand-in for the image python:3.12-slim-bookworm
PYTHON: Final = ("python3", "python3-pip", "python3-venv", "ca-certificates")
NODE: Final = (
    *("containerd", "runc", "containernetworking-plugins", "nftables", "iproute2", "procps"),
    *("buildah", "tini", "mount", "util-linux", "kmod"),
)
#: what buildah calls the base image of ops/kubernetes/Dockerfile
BASE: Final = "docker.io/library/python:3.12-slim-bookworm"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command to its end, and return what it prints.

    Raises:
        subprocess.CalledProcessError: when it fails.
    """
    print("+", *command, flush=True)
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout


def build() -> None:
    """Make what is not there yet."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if not (PLACE / "bin" / "kubelet").exists():
        _build_programs()
    if not (PLACE / "base" / "done").exists():
        _make_base()
    if not (PLACE / "node" / "done").exists():
        _make_node()
    if not (PLACE / "node" / "var/tmp/orders.tar").exists():
        build_image()


def _build_programs() -> None:
    go, programs = PLACE / "go", PLACE / "bin"
    go.mkdir(exist_ok=True)
    for name, source in SOURCES.items():
        (go / name).mkdir(exist_ok=True)
        (go / name / "main.go").write_text(source.lstrip())
    modules = Path(run("go", "env", "GOMODCACHE").strip())
    run("go", "mod", "download", f"k8s.io/kubernetes@v{KUBERNETES}", cwd=PLACE)
    kubernetes = (modules / f"k8s.io/kubernetes@v{KUBERNETES}" / "go.mod").read_text()
    # the parts of Kubernetes that are modules of their own: version 1.x.y has them as 0.x.y
    parts = re.findall(r"^\s*(\S+) => \./staging", kubernetes, re.MULTILINE)
    version = KUBERNETES.replace("1.", "0.", 1)
    required = {"k8s.io/kubernetes": KUBERNETES, **OTHERS}
    lines = [
        "module node",
        "go 1.25.0",
        *(f"require {name} v{number}" for name, number in required.items()),
        *(f"replace {part} => {part} v{version}" for part in parts),
    ]
    (go / "go.mod").write_text("\n".join([*lines, ""]))
    # without it, an API server calls itself v0.0.0, which clients do not understand
    about = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES.split(".")
    named = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X {about}.{key}={value}" for key, value in named.items())])
    programs.mkdir(exist_ok=True)
    command = ("env", "CGO_ENABLED=0", "go", "build", "-mod=mod", "-ldflags", flags)
    run(*command, "-o", f"{programs}/", *PROGRAMS, cwd=go)


def build_operator() -> list[Path]:
    """Make the operator if it is not there yet; returns the definitions of its resources."""
    name, version = OPERATOR
    modules = Path(run("go", "env", "GOMODCACHE").strip())
    run("go", "mod", "download", f"{name}@v{version}", cwd=PLACE)
    source = modules / f"{name}@v{version}"
    if not (PLACE / "bin" / "operator").exists():
        place = PLACE / "operator"
        place.mkdir(exist_ok=True)
        (place / "go.sum").write_bytes((source / "go.sum").read_bytes())
        # it needs what it replaces, and only the main module can replace something
        own = re.sub(r"^(module|tool) .*", "", (source / "go.mod").read_text(), flags=re.MULTILINE)
        (place / "go.mod").write_text(f"module own\n{own}\nrequire {name} v{version}\n")
        command = ("env", "CGO_ENABLED=0", "go", "build", "-mod=mod", "-ldflags", "-s -w")
        run(*command, "-o", PLACE / "bin" / "operator", f"{name}/cmd/operator", cwd=place)
    return sorted((source / "config" / "crd" / "bases").glob("*.yaml"))


def _make_base() -> None:
    base = PLACE / "base"
    shutil.rmtree(base, ignore_errors=True)
    extra = ",".join(PYTHON)
    run("debootstrap", "--variant=minbase", f"--include={extra}", SUITE, base)
    (base / "usr/local/bin/python3").symlink_to("/usr/bin/python3")
    (base / "etc/pip.conf").write_text("[global]\nbreak-system-packages = true\n")
    # those of a proxy, for example
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy(certificates, base / "etc/ssl/certs")
    for archive in (base / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    (base / "done").touch()


def _make_node() -> None:
    node = PLACE / "node"
    shutil.rmtree(node, ignore_errors=True)
    run("cp", "-a", PLACE / "base", node)
    (node / "done").unlink()
    # no service is started
    (node / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (node / "usr/sbin/policy-rc.d").chmod(0o755)
    install = ("apt-get", "install", "--yes", "--no-install-recommends")
    inside("apt-get", "update")
    inside("env", "DEBIAN_FRONTEND=noninteractive", *install, *NODE)
    (node / "done").touch()


def inside(*command: str | Path) -> None:
    """Run a command in the Debian of the node, with the network of this machine."""
    node = PLACE / "node"
    shutil.copy("/etc/resolv.conf", node / "etc/resolv.conf")
    spaces = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
    run("unshare", *spaces, OWN / "node.sh", node, *command)


def build_image() -> None:
    """Build the image of the job, with the Holdfast of this folder, and that of the pauses."""
    context = PLACE / "node" / "var/tmp/context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "dist").mkdir(parents=True)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", context / "dist")
    shutil.copytree(ROOT / "ops", context / "ops")
    (context / "examples").mkdir()
    shutil.copy(OWN / "job.py", context / "examples" / "count_per_key.py")
    shutil.copy(PLACE / "bin" / "pause", context)
    (context / "Pause").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
    (context / "Base").write_text("FROM scratch\nADD base.tar /\n")
    run("tar", "-C", PLACE / "base", "--exclude=./done", "-cf", context / "base.tar", ".")
    settings = PLACE / "node" / "etc" / "containers"
    settings.mkdir(exist_ok=True)
    (settings / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (settings / "registries.conf").write_text('unqualified-search-registries = ["docker.io"]\n')
    files = {BASE: "Base", PAUSE: "Pause", IMAGE: "ops/kubernetes/Dockerfile"}
    lines = [
        "set -ex",
        "cd /var/tmp/context",
        *(
            f"buildah bud --isolation chroot --network host --pull-never -t {name} -f {file} ."
            for name, file in files.items()
        ),
        "rm -f /var/tmp/*.tar",
        f"buildah push {PAUSE} docker-archive:/var/tmp/pause.tar:{PAUSE}",
        f"buildah push {IMAGE} docker-archive:/var/tmp/orders.tar:{IMAGE}",
        "rm -r /var/tmp/context",
    ]
    inside("sh", "-c", "\n".join(lines))
