"""The manifests for Kubernetes: their parts fit together, and they are what the schemas say.

``scripts/try_kubernetes.py`` runs them on a cluster; nothing is run here. The schemas of Kubernetes
are in the package ``kubernetes-validate``. That of the operator's resource is in its repository,
``charts/spark-operator-chart/crds/sparkoperator.k8s.io_sparkapplications.yaml``; the environment
variable HOLDFAST_SPARK_OPERATOR_CRD names a copy of it.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

FOLDER: Final = Path(__file__).parent.parent.parent / "ops" / "kubernetes"
CRD: Final = "HOLDFAST_SPARK_OPERATOR_CRD"
#: a version of Kubernetes whose schemas are used
KUBERNETES: Final = "1.31"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the resources of a file."""
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


@pytest.fixture
def resources() -> dict[str, dict[str, Any]]:
    """Those of the Job, by kind."""
    found = {each["kind"]: each for each in documents("job.yaml")}
    assert list(found) == ["ServiceAccount", "Role", "RoleBinding", "Job"]
    return found


@pytest.fixture
def application() -> dict[str, Any]:
    (found,) = documents("spark-application.yaml")
    return found


@pytest.fixture
def pod(resources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    template: dict[str, Any] = resources["Job"]["spec"]["template"]
    return template


@pytest.fixture
def settings(pod: dict[str, Any]) -> dict[str, str]:
    """What the driver is given with ``-D``."""
    arguments = pod["spec"]["containers"][0]["args"]
    pairs = (each.removeprefix("-D").split("=", 1) for each in arguments if each.startswith("-D"))
    return dict(pairs)


def test_executors_reach_the_driver_at_its_pod(
    pod: dict[str, Any], settings: dict[str, str]
) -> None:
    (container,) = pod["spec"]["containers"]
    (own,) = (each for each in container["env"] if each["name"] == "POD_IP")
    assert own["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert settings["spark.driver.host"] == "$(POD_IP)"
    # NB: Spark 4.3 tells executors this address, even if it stands for all of the pod
    assert "spark.driver.bindAddress" not in settings
    ports = {str(each["containerPort"]) for each in container["ports"]}
    first = settings["holdfast.port.range"].partition("-")[0]
    assert ports == {
        settings["spark.driver.port"],
        settings["spark.driver.blockManager.port"],
        first,
    }


def test_the_heap_of_the_driver_leaves_memory_for_python(
    pod: dict[str, Any], settings: dict[str, str]
) -> None:
    assert settings["spark.driver.memory"] == "1g"
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "2Gi"


def test_the_driver_may_make_its_executors(
    resources: dict[str, dict[str, Any]], pod: dict[str, Any], settings: dict[str, str]
) -> None:
    account, binding = resources["ServiceAccount"]["metadata"], resources["RoleBinding"]
    assert pod["spec"]["serviceAccountName"] == account["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["roleRef"]["name"] == resources["Role"]["metadata"]["name"]
    assert {each["metadata"]["namespace"] for each in resources.values()} == {
        settings["spark.kubernetes.namespace"]
    }
    container = pod["spec"]["containers"][0]
    assert settings["spark.kubernetes.container.image"] == container["image"]


def test_executors_have_the_credentials_of_the_driver(
    pod: dict[str, Any], settings: dict[str, str]
) -> None:
    variables = pod["spec"]["containers"][0]["env"]
    secrets = {
        each["name"]: each["valueFrom"]["secretKeyRef"]
        for each in variables
        if "secretKeyRef" in each["valueFrom"]
    }
    assert secrets
    for name, reference in secrets.items():
        given = settings[f"spark.kubernetes.executor.secretKeyRef.{name}"]
        assert given == f"{reference['name']}:{reference['key']}"


def test_there_are_as_many_cores_as_subtasks(
    pod: dict[str, Any], settings: dict[str, str], application: dict[str, Any]
) -> None:
    cores = int(settings["spark.executor.instances"]) * int(settings["spark.executor.cores"])
    assert f"--parallelism={cores}" in pod["spec"]["containers"][0]["args"]
    executor = application["spec"]["executor"]
    assert executor["instances"] * executor["cores"] == cores


def test_image_and_application_have_one_version_of_spark(application: dict[str, Any]) -> None:
    dockerfile = (FOLDER / "Dockerfile").read_text("utf-8")
    version = application["spec"]["sparkVersion"]
    assert re.findall(r"^ARG SPARK_VERSION=(\S+)$", dockerfile, re.M) == [version]
    program = application["spec"]["mainApplicationFile"].removeprefix("local://")
    assert f" {program}\n" in dockerfile
    assert documents("job.yaml")[-1]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == (
        program
    )


@pytest.fixture
def container(tmp_path: Path) -> dict[str, str]:
    """The environment of a container whose programs print what they are started with."""
    programs = {
        "tini": 'shift 2; exec "$@"',
        "java": 'printf "%s\\n" java "$@"',
        "spark-submit": 'printf "%s\\n" submit "$@"',
    }
    (tmp_path / "bin").mkdir()
    for name, program in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o700)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    return {"PATH": path, "JAVA_HOME": str(tmp_path), "SPARK_HOME": str(tmp_path)}


def started(container: dict[str, str], *arguments: str) -> list[str]:
    command = ["bash", FOLDER / "entrypoint.sh", *arguments]
    done = subprocess.run(command, env=container, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_entry_point_starts_an_executor(container: dict[str, str]) -> None:
    options = [f"-Dnumber={number} of them" for number in range(12)]
    container |= {f"SPARK_JAVA_OPT_{k}": option for k, option in enumerate(options)}
    container |= {"SPARK_EXECUTOR_MEMORY": "512m", "SPARK_EXECUTOR_ID": "7"}
    container |= {"SPARK_CLASSPATH": "/own.jar", "SPARK_CONF_DIR": "/conf"}
    command = started(container, "executor")
    assert command[:16] == [
        *("java", *options, "-Xms512m", "-Xmx512m", "-cp"),
    ]
    assert command[16] == f"/conf:/own.jar:{container['SPARK_HOME']}/jars/*"
    assert command[command.index("--executor-id") + 1] == "7"


def test_the_entry_point_starts_a_driver_in_cluster_mode(container: dict[str, str]) -> None:
    container["SPARK_DRIVER_BIND_ADDRESS"] = "10.1.2.3"
    assert started(container, "driver", "--class", "A", "local:///app/job.py") == [
        *("submit", "--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.1.2.3"),
        *("--class", "A", "local:///app/job.py"),
    ]


def test_the_entry_point_runs_any_other_command(container: dict[str, str]) -> None:
    assert started(container, "echo", "two words", "one") == ["two words one"]


def test_resources_are_what_the_schemas_of_kubernetes_say(
    resources: dict[str, dict[str, Any]],
) -> None:
    reason = "kubernetes-validate is not installed: pip install kubernetes-validate"
    validate = pytest.importorskip("kubernetes_validate", reason=reason)
    for resource in resources.values():
        validate.validate(resource, KUBERNETES, strict=True)
    resources["Job"]["spec"]["template"]["spec"]["containers"][0]["img"] = "a field of no schema"
    with pytest.raises(validate.ValidationError):
        validate.validate(resources["Job"], KUBERNETES, strict=True)


def test_the_application_is_what_the_operator_defines(application: dict[str, Any]) -> None:
    path = os.environ.get(CRD)
    if not path:
        pytest.skip(f"{CRD} is not set; it names a copy of the operator's resource definition")
    definition = yaml.safe_load(Path(path).read_text("utf-8"))
    (version,) = (each for each in definition["spec"]["versions"] if each["name"] == "v1beta2")
    schema = version["schema"]["openAPIV3Schema"]
    assert application["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    assert unknown(application, schema) == []
    application["spec"]["drivers"] = {}
    assert unknown(application, schema) == ["spec.drivers"]


#: by type of a schema
TYPES: Final = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def unknown(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """Return what a schema of a resource definition has not, or not like this."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [where]
    if not isinstance(value, TYPES[schema["type"]]):
        return [where]
    if isinstance(value, list):
        return [bad for each in value for bad in unknown(each, schema["items"], where)]
    if not isinstance(value, dict):
        return [] if value in schema.get("enum", [value]) else [where]
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    missing = [f"{where}.{name}" for name in schema.get("required", ()) if name not in value]
    if not properties and others is None:  # such as metadata, which is Kubernetes' own
        return missing
    found = missing
    for name, part in value.items():
        place = f"{where}.{name}".lstrip(".")
        own = properties.get(name, others)
        found = [*found, *(unknown(part, own, place) if own else [place])]
    return found
