"""The package as it is published: what is in it, and that it works where only it is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from datetime import date
from pathlib import Path

import pytest
import yaml

import holdfast
from scripts.check_dist import check_metadata, check_source, readme_program
from scripts.release import ReleaseError, dated, with_version
from tests.test_architecture import MODULES, imports_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` builds."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(target), cwd=ROOT)
    return target


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=800,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    about = check_metadata(wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    source = ROOT / "src"
    expected = {
        file.relative_to(source).as_posix()
        for file in (source / "holdfast").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "holdfast/py.typed" in expected
    assert str(about.version) == holdfast.__version__
    assert str(about.description).startswith("# Holdfast")


def test_the_version_is_a_semantic_one() -> None:
    number = r"(0|[1-9]\d*)"
    assert re.fullmatch(
        rf"{number}\.{number}\.{number}((a|b|rc)\d+|\.dev\d+)?", holdfast.__version__
    )


def test_every_package_that_is_imported_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    given = ("hdfs", "webhdfs", "kafka", "avro", "hbase", "delta", "iceberg")
    asked = [*project["dependencies"], *(name for extra in given for name in extras[extra])]
    names = {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in asked}
    imported = {
        name.partition(".")[0] for module in MODULES for name, _ in imports_of(module)
    } - sys.stdlib_module_names
    assert imported - names == {"holdfast"}


def test_the_source_distribution_has_what_make_needs(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = ["Makefile", "scripts/setup.sh", "constraints.txt", "pyproject.toml", "LICENSE"]
    wanted += [
        "constraints-build.txt",
        "constraints-docs.txt",
        "mkdocs.yml",
        "scripts/docs_site.py",
        "docs/plans/orders.svg",
    ]
    wanted += ["examples/orders/__main__.py", "tests/conftest.py", "src/holdfast/py.typed"]
    assert [name for name in wanted if name not in names] == []


def test_the_source_distribution_builds_the_same_wheel(dist: Path) -> None:
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_source(source, wheel)


CHANGES = "# Changelog\n\n## [Unreleased]\n{}\n## [0.1.0] - 2026-01-01\n\n- First.\n"


def test_a_release_has_its_version_and_its_day() -> None:
    assert with_version('a = 1\n__version__ = "0.1.0"\n', "0.2.0") == (
        'a = 1\n__version__ = "0.2.0"\n'
    )
    released = dated(CHANGES.format("\n- Second.\n"), "0.2.0", date(2026, 2, 3))
    assert released == CHANGES.format("\n## [0.2.0] - 2026-02-03\n\n- Second.\n")


def test_a_release_that_is_none() -> None:
    with pytest.raises(ReleaseError, match=r"version 0\.1\.0 is older than 0\.2\.0"):
        with_version('__version__ = "0.2.0"', "0.1.0")
    with pytest.raises(ReleaseError, match="'soon' is not a version"):
        with_version('__version__ = "0.2.0"', "soon")
    for version, written in (("v0.3.0", "0.3.0"), ("0.3.0-rc1", "0.3.0rc1")):
        with pytest.raises(ReleaseError, match=f"'{version}' is written '{written}'"):
            with_version('__version__ = "0.2.0"', version)
    for nothing in ("", "\n### Added\n\n### Fixed\n"):
        with pytest.raises(ReleaseError, match="nothing to release"):
            dated(CHANGES.format(nothing), "0.2.0", date(2026, 2, 3))
    with pytest.raises(ReleaseError, match=r"has version 0\.1\.0 already"):
        dated(CHANGES.format("\n- Second.\n"), "0.1.0", date(2026, 2, 3))


def test_a_release_that_cannot_be_made_leaves_the_clone_as_it_was(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for path, text in (
        ("scripts/release.py", (ROOT / "scripts" / "release.py").read_text()),
        ("src/holdfast/__init__.py", '__version__ = "0.1.0"\n'),
        ("CHANGELOG.md", CHANGES.format("").replace("0.1.0", "0.0.1")),
    ):
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first"), ("tag", "v0.3.0")):
        run(*git, *command, cwd=clone)

    def refused(version: str) -> str:
        command = [sys.executable, "scripts/release.py", version]
        done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr

    assert "there is a tag v0.3.0 already" in refused("0.3.0")
    assert "0.0.9 is older than 0.1.0" in refused("0.0.9")
    assert "nothing to release" in refused("0.2.0")
    assert run("git", "status", "--porcelain", cwd=clone) == ""
    (clone / "draft").touch()
    assert "there are uncommitted changes" in refused("0.2.0")


def test_a_release_is_committed_and_tagged_with_what_was_built(tmp_path: Path) -> None:
    """Its golden checkpoints are those of the clone, whichever Holdfast the caller imports."""
    make_golden = """
import os, sys
from pathlib import Path
Path("tests/golden/made").write_text(os.environ.get("PYTHONPATH", "of this clone"))
"""
    clone = tmp_path / "clone"
    for path, text in (
        ("scripts/release.py", (ROOT / "scripts" / "release.py").read_text()),
        ("src/holdfast/__init__.py", '__version__ = "0.1.0"\n'),
        ("CHANGELOG.md", CHANGES.format("\n- Second.\n")),
        ("Makefile", "dist:\n\tgrep -q 0.2.0 src/holdfast/__init__.py\n"),
        ("tests/golden/make.py", make_golden),
    ):
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    names = {
        f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        run("git", *command, cwd=clone, **names)
    release = (sys.executable, "scripts/release.py", "0.2.0")
    run(*release, cwd=clone, **names, PYTHONPATH="another")
    assert run("git", "status", "--porcelain", cwd=clone) == ""
    assert run("git", "log", "-1", "--format=%s", cwd=clone).strip() == "Release 0.2.0"
    assert run("git", "describe", "--exact-match", cwd=clone).strip() == "v0.2.0"
    assert (clone / "tests" / "golden" / "made").read_text() == "of this clone"
    assert "\n## [0.2.0] - " in (clone / "CHANGELOG.md").read_text()


def test_what_is_published_is_what_was_checked() -> None:
    """By a workflow without a token, whose only right is to say who it is."""
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert "make dist" in [step.get("run") for step in jobs["build"]["steps"]]
    publish = jobs["publish"]
    assert (publish["needs"], publish["permissions"]) == ("build", {"id-token": "write"})
    assert "secrets." not in text


@pytest.mark.spark
def test_the_readme_s_program_runs_where_the_wheel_is_installed(dist: Path, tmp_path: Path) -> None:
    """A new environment, a new directory, and the wheel instead of this source.

    The packages that it needs are those of the environment of the tests; nothing is downloaded. So
    this shows that the wheel is whole; that it asks for what it imports is the test above.
    """
    (wheel,) = dist.glob("*.whl")
    place = tmp_path / "venv"
    venv.create(place)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel), cwd=tmp_path)
    site = next(place.glob("lib/python*/site-packages"))
    # NB: a line of a .pth file adds a directory; the .pth file of the editable install that is in
    # that directory is not read then
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    where = run(str(python), "-c", "import holdfast; print(holdfast.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(place)

    program, output = readme_program()
    (tmp_path / "program.py").write_text(program)
    command = str(place / "bin" / "holdfast")
    assert run(command, "run", "program.py", cwd=tmp_path) == output
    run(command, "new", "job", cwd=tmp_path)
    assert run(command, "info", "job/job.py", cwd=tmp_path).startswith("job 'job'")
