"""The layout holds: who may import whom, where pyspark is, and how long a module may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "holdfast"
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST = 600

#: What every package may import.
BASICS = {"errors", "printable", "__init__"}
#: What each package may import of the others, when its modules are loaded.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "printable": set(),
    "__init__": set(),
    "common": set(),
    "metrics": set(),
    "graph": set(),
    "filesystem": {"common"},
    "plan": {"graph"},
    "state": {"common", "datastream", "filesystem"},
    "datastream": {"common", "metrics", "graph", "plan", "state", "filesystem"},
    "runtime": {"common", "metrics", "graph", "plan", "state", "filesystem", "datastream"},
    "checkpoint": {"common", "state", "plan", "filesystem"},
    "driver": {
        "common",
        "graph",
        "plan",
        "state",
        "filesystem",
        "datastream",
        "runtime",
        "checkpoint",
        "history",
    },
    "savepoint": {"common", "state", "filesystem", "datastream", "runtime", "checkpoint"},
    "history": {"common", "plan", "runtime", "filesystem"},
    "rest": {"common", "plan", "history", "state", "savepoint", "checkpoint", "filesystem"},
    "spark": {
        "common",
        "metrics",
        "graph",
        "plan",
        "state",
        "filesystem",
        "datastream",
        "runtime",
        "checkpoint",
        "driver",
        "savepoint",
        "history",
        "rest",
    },
    "testing": {
        "common",
        "metrics",
        "graph",
        "plan",
        "state",
        "filesystem",
        "datastream",
        "runtime",
        "checkpoint",
        "driver",
        "history",
    },
    # It runs programs, and leaves it to them to start Spark.
    "cli": {
        *("common", "plan", "state", "filesystem", "datastream", "checkpoint", "savepoint"),
        *("rest", "history"),
    },
    "__main__": {"cli"},
}
#: Imports inside of functions, made when a job is started or Spark is to read or write state;
#: nothing else may be late.
LATE = {
    ("savepoint/data.py", "spark"),
    ("savepoint/writer.py", "spark"),
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


def name_of(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def is_allowed(module: Path, imported: str, how: str) -> bool:
    package, target = package_of(module), imported.split(".")[1]
    if target == package or target in BASICS or how == "typing":
        return True
    if how == "late":
        return (name_of(module), target) in LATE
    if package == "state" and target == "datastream":
        return imported in STATE_MAY_SEE
    return target in ALLOWED[package]


def test_imports_go_one_way() -> None:
    assert [
        f"{name_of(module)} imports {imported} ({how})"
        for module in MODULES
        for imported, how in imports_of(module)
        if imported.startswith("holdfast.") and not is_allowed(module, imported, how)
    ] == []


def test_only_the_spark_package_imports_pyspark() -> None:
    """The API may name Spark's types, for type checkers."""
    assert [
        f"{name_of(module)} imports {imported} ({how})"
        for module in MODULES
        for imported, how in imports_of(module)
        if imported.split(".")[0] in ("pyspark", "py4j")
        and package_of(module) != "spark"
        and not (package_of(module) in ("datastream", "savepoint") and how == "typing")
    ] == []


def test_no_module_is_too_long() -> None:
    lengths = {name_of(module): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


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
    assert not is_allowed(ROOT / "plan" / "model.py", "holdfast.runtime.task", "loaded")
    assert not is_allowed(ROOT / "runtime" / "task.py", "holdfast.testing", "loaded")
    assert not is_allowed(ROOT / "graph" / "nodes.py", "holdfast.plan.model", "late")
    assert not is_allowed(ROOT / "state" / "heap.py", "holdfast.datastream.functions", "loaded")


def test_every_package_has_a_rule() -> None:
    assert {package_of(module) for module in MODULES} <= set(ALLOWED)
