"""What the documentation's site has beside the files of docs/: a hook of MkDocs, see mkdocs.yml.

Made here are the front page (the README), a page for each public module (its names are told by
their docstrings), a page for each example, and those for CONTRIBUTING and CHANGELOG. Links in all
of them are those that work between the files of the source; here they are turned to pages.

The parts that need no MkDocs are tested by ``tests/examples/test_site.py``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]

#: Public modules in the order of their pages; connectors are found. A name that several of them
#: have is described where it comes first, and linked to from the others.
MODULES: Final = (
    "holdfast.datastream",
    "holdfast.datastream.functions",
    "holdfast.datastream.state",
    "holdfast.datastream.window",
    "holdfast.datastream.connectors",
    "holdfast.datastream.async_retry_strategies",
    "holdfast.datastream.async_retry_predicates",
    "holdfast.common",
    "holdfast.common.typeinfo",
    "holdfast.common.serialization",
    "holdfast.common.serializer",
    "holdfast.common.watermark_strategy",
    "holdfast.common.restart_strategy",
    "holdfast.common.time",
    "holdfast.common.types",
    "holdfast.errors",
    "holdfast.state.errors",
    "holdfast.checkpoint.errors",
    "holdfast.savepoint",
    "holdfast.testing",
    "holdfast.torture",
    "holdfast.metrics",
    "holdfast.filesystem",
)

#: pages of the site by the files of the source that they are made of
_PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples": "examples/index.md",
}
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
_PICTURE: Final = re.compile(r'(?P<attribute>src|srcset)="(?P<target>[^":]+)"')
_EXAMPLE: Final = re.compile(r"(?<!\[)`(?P<path>examples/[\w/]+(?:\.py)?)`")
_ANCHOR: Final = re.compile(r'id="(holdfast[\w.]+)"')
_LOADED: Final = re.compile(
    r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["']?(https?:[^"'\s>]+)"""
)


# --- The names of the public modules ---


def modules() -> list[str]:
    """Return the modules that have a page."""
    found: list[str] = []
    for name in MODULES:
        found.append(name)
        if name.endswith(".connectors"):
            path = importlib.import_module(name).__path__
            inner = [module.name for module in pkgutil.iter_modules(path)]
            public = [f"{name}.{module}" for module in inner if not module.startswith("_")]
            found += [module for module in public if names_of(module)]
    return found


def names_of(module: str) -> list[str]:
    """Return the public names of a module."""
    loaded = importlib.import_module(module)
    own = [name for name, value in vars(loaded).items() if _is_own_class(value, module)]
    return sorted(getattr(loaded, "__all__", own), key=str.lower)


def _is_own_class(value: object, module: str) -> bool:
    return inspect.isclass(value) and value.__module__ == module


def homes() -> dict[str, str]:
    """Return for ``module.name`` of every public name that by which it is described."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for module in modules():
        for name in names_of(module):
            value = getattr(importlib.import_module(module), name)
            path = f"{module}.{name}"
            # NB: small values, such as numbers, may be one object under several names
            is_definition = inspect.isclass(value) or inspect.isfunction(value)
            found[path] = first.setdefault(id(value), path) if is_definition else path
    return found


def module_page(module: str, described: dict[str, str]) -> str:
    """Return the page of a module."""
    names = [f"{module}.{name}" for name in names_of(module)]
    here = [name for name in names if described[name] == name]
    lines = [f"# {module}", "", f"::: {module}"]
    lines += ["    options: {members: false, show_root_heading: false}", ""]
    elsewhere = [name for name in names if described[name] != name]
    if elsewhere:
        links = ", ".join(f"[`{_last(name)}`][{described[name]}]" for name in elsewhere)
        lines += [f"Also here: {links}.", ""]
    for name in here:
        lines += [f"::: {name}", ""]
    return "\n".join(lines)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


# --- The examples ---


def examples() -> dict[str, str]:
    """Return the pages of the examples, and of what they are made, by path in the source."""
    folder = ROOT / "examples"
    programs = sorted(folder.glob("[!_]*.py"))
    packages = [path for path in sorted(folder.iterdir()) if (path / "__main__.py").exists()]
    return {
        path.relative_to(ROOT).as_posix(): f"examples/{path.stem}.md"
        for path in [*packages, *programs]
    }


def example_page(source: str) -> str:
    """Return the page of a program, or of a package that is one."""
    path = ROOT / source
    if path.is_dir():
        files = [path / "__init__.py", *sorted(path.glob("[!_]*.py")), path / "__main__.py"]
    else:
        files = [path]
    lines = [f"# {path.stem.replace('_', ' ').capitalize()}", "", _summary(files[0]), ""]
    if (ROOT / "docs" / "plans" / f"{path.stem}.svg").exists():
        lines += [f"![Its plan](../plans/{path.stem}.svg)", ""]
    for file in files:
        lines += [
            f'```python title="{file.relative_to(ROOT)}"',
            file.read_text().rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def examples_index() -> str:
    """Return the list of the examples."""
    lines = ["# Examples", "", "Run from a clone, each by itself: `.venv/bin/python FILE`.", ""]
    lines += ["| program | what it shows |", "| --- | --- |"]
    for source, page in examples().items():
        first = ROOT / source / "__init__.py" if (ROOT / source).is_dir() else ROOT / source
        lines.append(f"| [{source}]({posixpath.basename(page)}) | {_summary(first)} |")
    return "\n".join(lines)


def _summary(file: Path) -> str:
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


# --- Links ---


def pages() -> dict[str, str]:
    """Return the pages of the site by the files of the source that they are made of."""
    docs = ROOT / "docs"
    written = {f"docs/{name}": name for name in _relative(docs)}
    return _PAGES | written | examples()


def _relative(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def with_links_to_pages(text: str, source: str, page_of: dict[str, str]) -> str:
    """Return a page whose links, which lead from file to file of the source, lead to pages.

    What no page is made of is named, without a link.
    """
    page = page_of[source]

    def file_of(target: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))

    def way_to(file: str) -> str:
        return posixpath.relpath(page_of[file], posixpath.dirname(page) or ".")

    def link(found: re.Match[str]) -> str:
        target, _, anchor = found["target"].partition("#")
        if not target or ":" in target:
            return found[0]
        file = file_of(target)
        if file in page_of:
            return f"[{found['text']}]({way_to(file)}{'#' * bool(anchor)}{anchor})"
        return found["text"] if (ROOT / file).exists() else found[0]

    def picture(found: re.Match[str]) -> str:
        file = file_of(found["target"])
        return f'{found["attribute"]}="{way_to(file)}"' if file in page_of else found[0]

    def example(found: re.Match[str]) -> str:
        if found["path"] not in page_of:
            return found[0]
        return f"[{found[0]}]({way_to(found['path'])})"

    def turned(part: str) -> str:
        return _EXAMPLE.sub(example, _PICTURE.sub(picture, _LINK.sub(link, part)))

    parts = _FENCE.split(text)
    parts[::2] = [turned(part) for part in parts[::2]]
    return "".join(parts)


# --- What MkDocs calls ---


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made here into the navigation."""
    made: dict[str, list[Any]] = {
        "python": [{name: f"python/{name}.md"} for name in modules()],
        "examples": ["examples/index.md", *examples().values()],
    }
    config.nav = _filled(config.nav, made)
    return config


def _filled(entry: Any, made: dict[str, list[Any]]) -> Any:
    if isinstance(entry, list):
        return [_filled(item, made) for item in entry]
    if isinstance(entry, dict):
        return {title: _filled(item, made) for title, item in entry.items()}
    return made.get(entry, entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    described = homes()
    made = {f"python/{module}.md": module_page(module, described) for module in modules()}
    made |= {page: example_page(source) for source, page in examples().items()}
    made["examples/index.md"] = examples_index()
    made |= {page: (ROOT / name).read_text() for name, page in _PAGES.items() if name[0].isupper()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links."""
    page_of = pages()
    source = next((file for file, path in page_of.items() if path == page.file.src_uri), None)
    return markdown if source is None else with_links_to_pages(markdown, source, page_of)


def on_post_build(config: MkDocsConfig) -> None:
    """Check that every public name is in the site, and that nothing is loaded from elsewhere."""
    from mkdocs.exceptions import PluginError

    texts = {path: path.read_text() for path in sorted(Path(config.site_dir).rglob("*.html"))}
    anchors = {name for text in texts.values() for name in _ANCHOR.findall(text)}
    problems = [f"{name} is not described" for name in set(homes().values()) - anchors]
    problems += [
        f"{path} loads {address}"
        for path, text in texts.items()
        for address in _LOADED.findall(text)
    ]
    if problems:
        raise PluginError("\n".join(sorted(problems)))
