"""A name that was read from a file cannot lead to another directory."""

from __future__ import annotations

import pytest

from holdfast.common.plain_names import plain_name, plain_path

ELSEWHERE = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a/",
    "/",
    "a\0b",
    "a\nb",
    "\x85",
    "x" * 256,
]


@pytest.mark.parametrize(
    "name", ["a", ".a", "...", "0-1-2-ab.state", "é" * 127, "a b", "a\\b", "-x"]
)
def test_plain_names(name: str) -> None:
    assert plain_name(name) == plain_path(name) == name
    assert plain_path(f"{name}/{name}") == f"{name}/{name}"


@pytest.mark.parametrize("name", [*ELSEWHERE, "a/b", "é" * 128])
def test_what_is_no_plain_name_is_shown(name: str) -> None:
    with pytest.raises(ValueError, match="is not the plain name of a file") as raised:
        plain_name(name)
    assert repr(name[:200])[:-1] in str(raised.value)


@pytest.mark.parametrize(
    "path", [*ELSEWHERE, "sources//0", "sources/0/", "a/./b", "x/" * 600 + "x"]
)
def test_what_is_no_plain_path_is_shown(path: str) -> None:
    with pytest.raises(ValueError, match="is not a plain relative path"):
        plain_path(path)
