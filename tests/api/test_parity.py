"""Holds PyFlink's public names against the package; what is missing is listed with a reason."""

import importlib
import json
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def missing_names():
    """The outermost missing name: a module, else a class, else a member, else an export."""
    listed = json.loads((HERE / "pyflink_api.json").read_text())
    return {name for module, names in listed.items() for name in missing_of_module(module, names)}


def missing_of_module(module, names):
    try:
        found = importlib.import_module(f"holdfast.{module}")
    except ModuleNotFoundError:
        yield module
        return
    exported = getattr(found, "__all__", [])
    yield from (f"{module}.__all__.{n}" for n in names.get("__all__", []) if n not in exported)
    for name, members in names.items():
        if name == "__all__":
            continue
        if not hasattr(found, name):
            yield f"{module}.{name}"
        else:
            thing = getattr(found, name)
            yield from (f"{module}.{name}.{m}" for m in members or () if not hasattr(thing, m))


def exclusions():
    by_reason = tomllib.loads((HERE / "exclusions.toml").read_text())
    return [name for names in by_reason.values() for name in names]


def test_every_missing_name_has_a_reason():
    unexplained = missing_names() - set(exclusions())
    assert not unexplained, f"not in the package, and not in exclusions.toml: {sorted(unexplained)}"


def test_every_exclusion_is_needed():
    needless = set(exclusions()) - missing_names()
    assert not needless, f"in the package now; take it out of exclusions.toml: {sorted(needless)}"


def test_no_exclusion_stands_twice():
    names = exclusions()
    assert sorted(names) == sorted(set(names))


def test_the_check_sees_what_is_missing():
    listed = {"__all__": ["Row", "Nothing"], "Row": ["as_dict", "nowhere"], "Nothing": []}
    assert set(missing_of_module("common", listed)) == {
        "common.__all__.Nothing",
        "common.Nothing",
        "common.Row.nowhere",
    }
    assert set(missing_of_module("nowhere", listed)) == {"nowhere"}
