"""What starts a job is found where it is, however the package came here."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.common import Configuration
from holdfast.datastream import engines
from holdfast.datastream.engines import Launcher, launcher
from holdfast.errors import JobDefinitionError
from holdfast.spark.shipping import zip_modules

PACKAGE = Path(holdfast.__file__).parent


@pytest.mark.parametrize("engine", ["auto", "resident", "epochs", "local"])
@pytest.mark.parametrize("name", ["collect_job", "default_parallelism", "run_job", "start_job"])
def test_what_is_found_has_what_an_environment_calls(name: str, engine: str) -> None:
    found = launcher(Configuration({"holdfast.engine": engine}))
    asked = list(inspect.signature(getattr(Launcher, name)).parameters)[1:]
    given = inspect.signature(getattr(found, name)).parameters.values()
    assert [parameter.name for parameter in given][: len(asked)] == asked
    assert all(parameter.default is not parameter.empty for parameter in [*given][len(asked) :])


def test_it_is_found_in_a_zip_file_without_metadata(tmp_path: Path) -> None:
    archive = zip_modules(PACKAGE, PACKAGE.parent, tmp_path / "holdfast.zip")
    program = (
        "import sys, holdfast.datastream; from holdfast.datastream.engines import launcher; "
        "from holdfast.common import Configuration; "
        "assert 'pyspark' not in sys.modules; print(launcher(Configuration()).__file__)"
    )
    environment = os.environ | {"PYTHONPATH": archive}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith(archive)


def test_a_program_that_only_plans_does_not_load_what_starts_a_job() -> None:
    program = (
        "import sys; from holdfast.datastream import StreamExecutionEnvironment as Env; "
        "env = Env.get_execution_environment(); env.from_collection([1]).print(); "
        "env.get_execution_plan(); print(env.get_default_local_parallelism(), "
        "[name for name in sys.modules if name in ('pyspark', 'holdfast.driver')])"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [str(os.cpu_count()), "[]\n"]


def test_nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda module: None)
    with pytest.raises(JobDefinitionError, match=r"no holdfast.engines.spark in .*: this copy"):
        engines._launcher.__wrapped__("spark")
