"""The documentation's site, as far as it can be seen without MkDocs, which `make docs` installs."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.docs_site import (
    ROOT,
    example_page,
    examples,
    examples_index,
    homes,
    module_page,
    modules,
    names_of,
    pages,
    with_links_to_pages,
)
from tests.api.test_exports import PACKAGES

TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def in_navigation(entry: Any) -> Iterator[str]:
    if isinstance(entry, dict):
        entry = list(entry.values())
    if isinstance(entry, str):
        yield entry
    else:
        for item in entry:
            yield from in_navigation(item)


def test_every_page_has_its_place_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    placed = list(in_navigation(settings["nav"]))
    made = {"index.md", "contributing.md", "changelog.md", "python", "examples"}
    docs = ROOT / "docs"
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert sorted(placed) == sorted(made | written)


def names_of_pyflink() -> Iterator[tuple[str, str]]:
    """Those of PyFlink's public modules that Holdfast has, where PyFlink has them."""
    listed = json.loads((ROOT / "tests" / "api" / "pyflink_api.json").read_text())
    for module, names in listed.items():
        for name in names:
            if name != "__all__" and not is_excluded(module, name):
                yield f"holdfast.{module}", name


def is_excluded(module: str, name: str) -> bool:
    try:
        return not hasattr(importlib.import_module(f"holdfast.{module}"), name)
    except ImportError:
        return True


def test_every_public_name_is_described() -> None:
    """Once, and linked to from wherever else it can be imported from."""
    described = {id(value_of(home)) for home in homes().values()}
    ours = [(package, name) for package in PACKAGES for name in names_of(package)]
    public = {*ours, *names_of_pyflink()} - {("holdfast", "__version__")}
    assert len(public) > 250
    missing = {
        f"{module}.{name}"
        for module, name in public
        if id(value_of(f"{module}.{name}")) not in described
    }
    assert missing == set()


def value_of(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_a_name_is_described_on_one_page() -> None:
    described = homes()
    text = {module: module_page(module, described) for module in modules()}
    assert "\n::: holdfast.datastream.MapFunction\n" in text["holdfast.datastream"]
    link = "[`MapFunction`][holdfast.datastream.MapFunction]"
    assert link in text["holdfast.datastream.functions"]
    told = [line for page in text.values() for line in page.splitlines() if line[:4] == "::: "]
    assert len(told) == len(set(told))


def test_links_to_files_become_links_to_pages() -> None:
    text = (
        "[a](docs/concepts.md#state) [b](examples/word_count.py) [c](tests/conftest.py) "
        "`examples/orders` [d](https://host/x.md)\n```sh\n[e](docs/concepts.md)\n```\n"
    )
    assert with_links_to_pages(text, "README.md", pages()) == (
        "[a](concepts.md#state) [b](examples/word_count.md) c "
        "[`examples/orders`](examples/orders.md) [d](https://host/x.md)\n"
        "```sh\n[e](docs/concepts.md)\n```\n"
    )
    shown = '<img alt="x" src="docs/plans/orders.svg"> <img src="https://host/docs/x.png">'
    assert with_links_to_pages(shown, "README.md", pages()) == shown.replace('"docs/', '"')
    inner = with_links_to_pages("[x](../testing.md)", "docs/internals/epoch.md", pages())
    assert inner == "[x](../testing.md)"


def test_every_example_has_a_page() -> None:
    made = examples()
    assert {"examples/word_count.py", "examples/orders"} <= made.keys()
    for source, page in made.items():
        assert source in example_page(source)
        assert page.removeprefix("examples/") in examples_index()


def anchors(page: Path) -> set[str]:
    """What headings are linked by, on GitHub and in the site."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_anchor_that_is_linked_to_is_there(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if anchor and ":" not in path:
            file = (page.parent / path).resolve() if path else page
            assert anchor in anchors(file), target


def test_the_pins_of_the_site_agree_with_the_others() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text().splitlines()
        found = (re.match(r"([\w-]+)==(\S+)", line) for line in lines)
        return dict(pin.groups() for pin in found if pin)

    main, docs = pins("constraints.txt"), pins("constraints-docs.txt")
    same = main.keys() & docs.keys()
    assert {name: docs[name] for name in same} == {name: main[name] for name in same}
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert {re.split(r"[^\w-]", wanted)[0] for wanted in groups["docs"]} <= docs.keys()
