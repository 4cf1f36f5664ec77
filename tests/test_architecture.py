"""The layout holds: who imports whom, where pyspark is, lengths of modules, names of classes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import LONGEST_FILES
from tests.conftest import ROOT as PROJECT

ROOT = PROJECT / "src" / "holdfast"
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST = 600

#: What every package may import.
BASICS = {"errors", "printable", "tracebacks", "__init__"}
#: What each package imports of the others, from the lowest layer up. There is no other way: an
#: import inside of a function counts as well, and so does one for type checkers.
ALLOWED: dict[str, set[str]] = {
    "common": set(),
    "metrics": set(),
    "graph": set(),
    "plan": {"graph"},
    "filesystem": {"common"},
    "state": {"common", "filesystem"},
    "datastream": {"common", "metrics", "graph", "plan", "filesystem", "state"},
    "checkpoint": {"common", "plan", "filesystem", "state"},
    "runtime": {"common", "metrics", "graph", "plan", "filesystem", "state", "datastream"},
    "history": {"common", "plan", "filesystem", "runtime"},
    "driver": {
        *("common", "graph", "plan", "filesystem", "state", "datastream", "checkpoint", "runtime"),
        *("history",),
    },
    "spark": {
        *("common", "graph", "plan", "filesystem", "state", "datastream", "checkpoint", "runtime"),
        *("driver",),
    },
    "local": {"common", "filesystem", "datastream", "checkpoint", "runtime", "driver"},
    "savepoint": {
        *("common", "filesystem", "state", "datastream", "checkpoint", "runtime", "spark"),
    },
    "rest": {"common", "plan", "state", "history", "savepoint"},
    # Nobody imports these: they are what a program, a test or a user starts with.
    "engines": {"common", "plan", "datastream", "driver", "history", "spark", "local", "rest"},
    "testing": {
        *("common", "graph", "plan", "filesystem", "state", "datastream", "checkpoint", "runtime"),
        *("driver",),
    },
    "torture": {
        *("common", "metrics", "graph", "plan", "datastream", "checkpoint", "runtime", "rest"),
    },
    # It runs programs, and leaves it to them to start Spark.
    "cli": {
        *("common", "plan", "state", "filesystem", "datastream", "checkpoint", "savepoint"),
        *("rest", "history", "torture"),
    },
    "__main__": {"cli"},
}
#: Names of two classes, each with the reason.
SAME_NAMES = {
    "Batch": "HBase's is pickled in saved state; the other one is public",
    "Metric": "a metric of the public API, and its answer in the OpenAPI document",
}
#: The modules that load Spark, and are themselves loaded when it is needed.
LOADING_SPARK = {"engines/spark.py", "savepoint/frames.py"}


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


def name_of(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def edges_of(module: Path) -> Iterator[tuple[str, str, str]]:
    """The modules of other packages that a module imports: package, module, and how."""
    for imported, how in imports_of(module):
        if imported.startswith("holdfast."):
            target = imported.split(".")[1]
            if target != package_of(module) and target not in BASICS:
                yield target, imported, how


def is_allowed(module: Path, target: str, how: str) -> bool:
    return how != "late" and target in ALLOWED.get(package_of(module), ())


def test_imports_go_one_way() -> None:
    assert [
        f"{name_of(module)} imports {imported} ({how})"
        for module in MODULES
        for target, imported, how in edges_of(module)
        if not is_allowed(module, target, how)
    ] == []


def test_nothing_is_allowed_that_is_not_used() -> None:
    used: dict[str, set[str]] = {package: set() for package in ALLOWED}
    for module in MODULES:
        if package_of(module) not in BASICS:
            used[package_of(module)] |= {target for target, _, _ in edges_of(module)}
    assert used == ALLOWED


def test_packages_are_layers() -> None:
    assert set(TopologicalSorter(ALLOWED).static_order()) == set(ALLOWED)


def test_spark_is_loaded_when_it_is_needed() -> None:
    """By no module that another one loads; `launcher` loads one of ``engines``."""
    loading = {
        name_of(module)
        for module in MODULES
        for target, _, how in edges_of(module)
        if target == "spark" and how == "loaded"
    }
    assert loading == LOADING_SPARK
    names = {f"holdfast.{name.removesuffix('.py').replace('/', '.')}" for name in LOADING_SPARK}
    assert [
        f"{name_of(module)} imports {imported}"
        for module in MODULES
        for imported, how in imports_of(module)
        if imported in names and how == "loaded"
    ] == []


def rooms_of(package: str) -> dict[str, set[str]]:
    """By room of a package (a folder, or a module beside the folders): the rooms it imports."""
    folder = ROOT / package
    graph: dict[str, set[str]] = {}
    for module in sorted(folder.rglob("*.py")):
        own = module.relative_to(folder).parts[0].removesuffix(".py")
        seen = graph.setdefault(own, set())
        for imported, how in imports_of(module):
            if imported.startswith(f"holdfast.{package}.") and how != "typing":
                seen.add(imported.split(".")[2])
        seen.discard(own)
    return graph


@pytest.mark.parametrize("package", sorted(ALLOWED.keys() - {"__main__"}))
def test_rooms_are_layers(package: str) -> None:
    """Late imports are counted."""
    assert list(TopologicalSorter(rooms_of(package)).static_order())


def test_a_circle_of_rooms_is_found() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}}).prepare()


def test_pyspark_is_imported_by_what_loads_spark() -> None:
    """The API may name Spark's types, for type checkers."""
    assert [
        f"{name_of(module)} imports {imported} ({how})"
        for module in MODULES
        for imported, how in imports_of(module)
        if imported.split(".")[0] in ("pyspark", "py4j")
        and package_of(module) != "spark"
        and name_of(module) not in LOADING_SPARK
        and not (package_of(module) in ("datastream", "savepoint") and how == "typing")
    ] == []


def test_no_module_is_too_long() -> None:
    lengths = {name_of(module): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_a_class_has_a_name_of_its_own() -> None:
    """Names of classes within classes and functions do not count."""
    names = Counter(
        node.name
        for module in MODULES
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == SAME_NAMES.keys()


def test_the_check_finds_what_it_looks_for(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import a.b\nfrom holdfast import spark\nif TYPE_CHECKING:\n    import c\n"
        "def f():\n    from d import e\n"
    )
    assert list(imports_of(module)) == [
        ("a.b", "loaded"),
        ("holdfast.spark", "loaded"),
        ("c", "typing"),
        ("d", "late"),
    ]
    assert not is_allowed(ROOT / "plan" / "model.py", "runtime", "loaded")
    assert not is_allowed(ROOT / "plan" / "model.py", "graph", "late")
    assert not is_allowed(ROOT / "state" / "heap.py", "datastream", "typing")


def test_every_package_has_a_rule() -> None:
    assert {package_of(module) for module in MODULES} == ALLOWED.keys() | BASICS


def test_the_test_files_that_start_first_exist() -> None:
    assert [name for name in LONGEST_FILES if not (PROJECT / name).exists()] == []
