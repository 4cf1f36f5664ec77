"""Runs ops/kubernetes/job.yaml on a Kubernetes of one node, and kills its pods while it works.

    .venv/bin/python scripts/try_kubernetes.py            # builds what is missing, and tries
    .venv/bin/python scripts/try_kubernetes.py --help

Needs Linux, root, Go, debootstrap, iproute2, openssl, the registries of Go, Debian and PyPI, and
about 10 GB in build/kubernetes. No images are downloaded; nothing is installed on this machine.

- Kubernetes, etcd and CoreDNS are built from Go's modules.
- The node is a Debian in namespaces of its own, with containerd, runc, the plugins for networks
  and buildah from Debian's packages. Its network has no way out.
- buildah builds the image from ops/kubernetes/Dockerfile. In place of its base image, which only a
  registry of images has, it takes a Debian with its own Python.

The job counts numbers by key into files on S3, and has its checkpoints there. In the end each key
must have each count exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.kubernetes.building import build, build_image, build_operator  # noqa: E402
from scripts.kubernetes.cluster import ADDRESS, LOGS, Cluster, until  # noqa: E402

TOOLS: Final = ("go", "debootstrap", "ip", "openssl", "unshare", "nsenter", "setpriv")
NUMBERS: Final = 40_000
#: seconds for each number; there are four subtasks, so this is for a minute and a half
PAUSE: Final = 0.009
STORE: Final = (ADDRESS, "9000")
OUTPUT: Final = "s3a://kept/counts"
#: what a user changes in ops/kubernetes/job.yaml: sizes for a node with two cores, the store, and
#: how often a checkpoint is taken, to have more of them in a short time
CHANGES: Final = {
    "--parallelism=8": "--parallelism=4",
    "executor.instances=4": "executor.instances=2",
    "executor.memory=1g": "executor.memory=512m",
    "executor.memoryOverhead=3g": "executor.memoryOverhead=1g",
    "--checkpoint-dir=s3a://bucket/": "--checkpoint-dir=s3a://kept/",
    "checkpointing.interval=10s": "checkpointing.interval=1s",
}
MORE: Final = (
    "spark.kubernetes.executor.request.cores=100m",
    f"spark.hadoop.fs.s3a.endpoint=http://{':'.join(STORE)}",
    "spark.hadoop.fs.s3a.endpoint.region=us-east-1",
    "spark.hadoop.fs.s3a.path.style.access=true",
)


def manifest() -> str:
    """Return ops/kubernetes/job.yaml as a user would change it."""
    text = (ROOT / "ops" / "kubernetes" / "job.yaml").read_text("utf-8")
    program = "            - /app/job.py\n"
    arguments = "".join(f'            - "{each}"\n' for each in (OUTPUT, NUMBERS, PAUSE))
    settings = "".join(f"            - -D{setting}\n" for setting in MORE)
    return changed(text, {**CHANGES, program: settings + program + arguments})


#: the same for ops/kubernetes/spark-application.yaml
APPLICATION_CHANGES: Final = {
    "instances: 4": "instances: 2",
    "memory: 1g": "memory: 512m",
    "memoryOverhead: 3g": "memoryOverhead: 1g",
}
#: the operator, in a pod with the image of the job, since it runs spark-submit
OPERATOR: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: spark-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
---
apiVersion: v1
kind: Pod
metadata: {name: spark-operator, namespace: default}
spec:
  containers:
    - name: controller
      image: registry.example/orders:1
      command: [/usr/bin/operator, controller, start, --namespaces=streaming]
      volumeMounts: [{name: program, mountPath: /usr/bin/operator}]
  volumes: [{name: program, hostPath: {path: /usr/local/bin/operator}}]
"""


def application() -> str:
    """Return ops/kubernetes/spark-application.yaml as a user would change it."""
    text = (ROOT / "ops" / "kubernetes" / "spark-application.yaml").read_text("utf-8")
    program, settings = "  mainApplicationFile: local:///app/job.py\n", "  sparkConf:\n"
    arguments = json.dumps([OUTPUT, str(NUMBERS), str(PAUSE), "s3a://kept/checkpoints"])
    pairs = (setting.split("=", 1) for setting in MORE)
    more = {
        program: f"{program}  arguments: {arguments}\n",
        settings: settings + "".join(f'    {key}: "{value}"\n' for key, value in pairs),
    }
    return changed(text, {**APPLICATION_CHANGES, **more})


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Return a text with changes, each of which must fit in one place."""
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


class Trial:
    """The job on a cluster, and what happens to it."""

    #: the command line of the driver, and what says in the end that it has succeeded
    _driver = "python3 .*holdfast run "
    _result = ("job", "{.status.succeeded}", "1")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._begin = time.monotonic()

    def start(self) -> None:
        """Start the store and the job."""
        server = (sys.executable, "-m", "tests.store", *STORE)
        self._cluster.start("store", *server, only_network=True)
        log = LOGS / "store.log"
        until(lambda: "ready" in log.read_text(), "the store is ready")
        self._cluster.kubectl("create", "namespace", "streaming")
        secret = ("AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret")
        literals = (f"--from-literal={each}" for each in secret)
        self._ask("create", "secret", "generic", "orders-s3", *literals)
        self._apply()

    def _apply(self) -> None:
        self._cluster.kubectl("apply", "-f", "-", text=manifest())
        self.say("applied job.yaml")

    def disturb(self) -> None:
        """Disturb it now and then, while it works."""
        for share, fault in self._faults():
            self.wait_for(share)
            fault()

    def _faults(self) -> list[tuple[float, Callable[[], None]]]:
        faults = [self.kill_an_executor, self.kill_the_driver, self.delete_the_driver]
        return list(zip((0.1, 0.3, 0.5), faults, strict=True))

    def kill_an_executor(self) -> None:
        """Kill the JVM of one."""
        pod = self._pods("spark-role=executor")[0]["metadata"]["name"]
        self._kill(rf"^\S*java .*KubernetesExecutorBackend .*--podName {pod}")
        self.say(f"kill -9: the executor {pod}")

    def kill_the_driver(self) -> None:
        """Kill its Python process."""
        self._kill(self._driver)
        self.say("kill -9: the driver")

    def delete_the_driver(self) -> None:
        """Delete its pod, as an eviction does."""
        (pod,) = self._drivers()
        self._ask("delete", "pod", pod, "--wait=false")
        self.say(f"deleted: the pod of the driver, {pod}")

    def wait_for(self, share: float) -> None:
        """Wait until a share of the results is committed."""
        wanted = NUMBERS * share
        what = f"{share:.0%} of the results are committed"
        until(lambda: self._results()["lines"] >= wanted, what, 900, pause=3)

    def finish(self) -> bool:
        """Wait for the end of the job; returns whether every count is exact."""
        kind, path, wanted = self._result
        question = ("get", kind, "orders", f"--output=jsonpath={path}")
        until(lambda: self._ask(*question) == wanted, "the job has succeeded", 900)
        found = self._results()
        self.say(f"succeeded: {found['lines']} results, wrong: {found['wrong'] or 'none'}")
        return not found["wrong"]

    def say(self, what: str) -> None:
        """Print it, with the time."""
        print(f"{time.monotonic() - self._begin:6.1f} s  {what}", flush=True)

    def save_logs(self) -> None:
        """Save what the API server knows, and what the pods have printed."""
        events = ("get", "pods,jobs,events", "--output=wide")
        (LOGS / "objects.txt").write_text(self._ask(*events))

    def _ask(self, *arguments: str) -> str:
        return self._cluster.kubectl("--namespace=streaming", *arguments)

    def _pods(self, selector: str) -> list[dict[str, Any]]:
        running = "--field-selector=status.phase=Running"
        text = self._ask("get", "pods", f"--selector={selector}", running, "--output=json")
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found

    def _drivers(self) -> list[str]:
        return [each["metadata"]["name"] for each in self._pods("app=orders,role=driver")]

    def _kill(self, pattern: str) -> None:
        (pid,) = self._cluster.run("pgrep", "--full", pattern).split()
        self._cluster.run("kill", "-9", pid)

    def _results(self) -> dict[str, Any]:
        reader = (sys.executable, "-m", "scripts.kubernetes.results", *STORE, str(NUMBERS))
        found: dict[str, Any] = json.loads(self._cluster.run(*reader, only_network=True))
        return found


class OperatorTrial(Trial):
    """The same job as a SparkApplication, whose driver the operator starts."""

    _driver = r"^\S*python3 /app/job.py"
    _result = ("sparkapplication", "{.status.applicationState.state}", "COMPLETED")

    def __init__(self, cluster: Cluster, definitions: Iterable[Path]) -> None:
        super().__init__(cluster)
        self._definitions = definitions

    def _apply(self) -> None:
        # NB: the rights of the driver are in job.yaml
        rights = manifest().partition("---\napiVersion: batch/v1")[0]
        self._cluster.kubectl("apply", "-f", "-", text=rights)
        for definition in self._definitions:
            self._cluster.kubectl("create", "-f", "-", text=definition.read_text("utf-8"))
        self._cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self._cluster.kubectl("apply", "-f", "-", text=OPERATOR)
        self._cluster.kubectl("wait", "--for=condition=Ready", "pod/spark-operator")
        self._cluster.kubectl("apply", "-f", "-", text=application())
        self.say("applied spark-application.yaml")

    def _faults(self) -> list[tuple[float, Callable[[], None]]]:
        return [(0.1, self.kill_an_executor), (0.3, self.kill_the_driver)]


def trial(job: Trial) -> bool:
    """Disturb a job; returns whether it is exact."""
    try:
        job.start()
        job.disturb()
        return job.finish()
    finally:
        job.save_logs()


def main() -> int:
    """Build, try, and clean up."""
    about, details = (__doc__ or "").split("\n", 1)
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=details, formatter_class=form)
    parser.add_argument("--build-image", action="store_true", help="build the image again")
    parser.add_argument(
        "--operator", action="store_true", help="try spark-application.yaml in place of job.yaml"
    )
    parser.add_argument(
        "--wait", action="store_true", help="start the cluster and no job, until Ctrl-C"
    )
    options = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        found = f"not found: {', '.join(missing)}" if missing else "this user is not root"
        parser.error(f"{found}; this needs Linux, root, Go, debootstrap, iproute2 and openssl")
    build()
    if options.build_image:
        build_image()
    definitions = build_operator() if options.operator else []
    with Cluster() as cluster:
        if not options.wait:
            job = OperatorTrial(cluster, definitions) if options.operator else Trial(cluster)
            return 0 if trial(job) else 1
        print("a shell in the node:", *cluster.command("bash"))
        print("in it: export KUBECONFIG=/etc/kubernetes/admin.json; kubectl get pods -A")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
