"""Which files of a checkout a benchmark program is made of, besides Holdfast itself.

Two checkouts run their own benchmark programs. Where these differ, so may the work that they do,
and a ratio of their rates would not be one of Holdfast alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["differing", "files_of"]

#: The packages that programs are made of.
_PACKAGES = ("benchmarks", "examples")


def differing(modules: Iterable[str], before: Path, after: Path) -> list[str]:
    """Return the files of some programs that are not the same in two checkouts."""
    paths = {
        path for module in modules for root in (before, after) for path in files_of(module, root)
    }
    return sorted(path for path in paths if _content(before / path) != _content(after / path))


def files_of(module: str, root: Path) -> set[str]:
    """Return the files of a module and of all that it imports, relative to the checkout."""
    modules = [module]
    found: set[str] = set()
    for each in modules:
        path = _path(each, root)
        if path is not None and path not in found:
            found.add(path)
            modules.extend(_imported((root / path).read_bytes()))
    return found


def _path(module: str, root: Path) -> str | None:
    name = module.replace(".", "/")
    paths = (f"{name}.py", f"{name}/__init__.py")
    return next((path for path in paths if (root / path).is_file()), None)


def _imported(source: bytes) -> Iterator[str]:
    """Yield what may be modules: of ``from a import b`` both ``a`` and ``a.b``."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the program will fail and say where
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name.split(".")[0] in _PACKAGES)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
