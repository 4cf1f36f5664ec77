"""The layout holds: who may import whom, where pyspark is, and how long a module may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "holdfast"
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST = 600

#: What each package may import of the others, when its modules are loaded. Basics are for all.
BASICS = {"errors", "__init__"}
ALLOWED = {
    "errors": set(),
    "__init__": set(),
    "common": set(),
    "metrics": set(),
    "graph": set(),
    "plan": {"graph"},
    "state": {"common", "datastream"},
    "datastream": {"common", "metrics", "graph", "plan", "state"},
    "runtime": {"common", "metrics", "graph", "plan", "state", "datastream"},
    "checkpoint": {"common", "state", "plan"},
    "spark": {"common", "metrics", "graph", "plan", "state", "datastream", "runtime", "checkpoint"},
    "testing": {"common", "metrics", "graph", "plan", "state", "datastream", "runtime", "checkpoint"},
}
#: Imports inside of functions, made when a job is started; nothing else may be late.
LATE = {
    ("datastream/stream_execution_environment.py", "spark"),
}
#: `state` shares the descriptors, which are public API, with `datastream`; nothing more.
STATE_MAY_SEE = {"holdfast.datastream.state"}


def package_of(module: Path) -> str:
    first = module.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


class _Imports(ast.NodeVisitor):
    """The modules that a module imports, each with how: at load time, late, or for types only."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._how = "loaded"

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self._within("typing", node)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._within("late", node)

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [(alias.name, self._how) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        assert node.module is not None
        self.found += [
            (f"holdfast.{alias.name}" if node.module == "holdfast" else node.module, self._how)
            for alias in node.names
        ]

    def _within(self, how: str, node: ast.AST) -> None:
        before, self._how = self._how, how
        self.generic_visit(node)
        self._how = before


def imports_of(module: Path) -> Iterator[tuple[str, str]]:
    visitor = _Imports()
    visitor.visit(ast.parse(module.read_text()))
    yield from visitor.found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(module: Path) -> None:
    package, name = package_of(module), module.relative_to(ROOT).as_posix()
    for imported, how in imports_of(module):
        if not imported.startswith("holdfast."):
            continue
        target = imported.split(".")[1]
        if target == package or target in BASICS or how == "typing":
            continue
        if how == "late":
            assert (name, target) in LATE, f"{name} imports {imported} within a function"
        else:
            assert target in ALLOWED[package], f"{name} imports {imported}"
        if package == "state":
            in_common = imported.startswith("holdfast.common")
            assert in_common or imported in STATE_MAY_SEE, f"{name} imports {imported}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_spark_package_imports_pyspark(module: Path) -> None:
    for imported, how in imports_of(module):
        if imported.split(".")[0] in ("pyspark", "py4j") and package_of(module) != "spark":
            assert how == "typing", f"{module.name} imports {imported}"
            assert package_of(module) == "datastream"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_is_too_long(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= LONGEST


def test_every_package_has_a_rule() -> None:
    assert {package_of(module) for module in MODULES} <= set(ALLOWED)
