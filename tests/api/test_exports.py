"""What the public packages and modules export: sorted, real, and complete."""

import importlib
import inspect
import pkgutil

import pytest

PACKAGES = [
    "holdfast",
    "holdfast.common",
    "holdfast.datastream",
    "holdfast.datastream.functions",
    "holdfast.filesystem",
    "holdfast.metrics",
    "holdfast.savepoint",
    "holdfast.testing",
    "holdfast.torture",
]


def public_modules():
    for package in ("holdfast.common", "holdfast.datastream", "holdfast.datastream.connectors"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if not module.ispkg and not module.name.startswith("_"):
                yield f"{package}.{module.name}"


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_of_a_package_are_sorted_and_complete(name):
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__)
    own = {
        attribute
        for attribute, value in vars(package).items()
        if not attribute.startswith("_") and comes_from(value, name)
    }
    assert own <= set(package.__all__)
    assert all(hasattr(package, exported) for exported in package.__all__)


@pytest.mark.parametrize("name", sorted(public_modules()))
def test_exports_of_a_module_are_complete(name):
    module = importlib.import_module(name)
    classes = {
        attribute
        for attribute, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == name and not attribute.startswith("_")
    }
    assert classes <= set(module.__all__), "public classes that __all__ does not name"
    assert all(hasattr(module, exported) for exported in module.__all__)


def comes_from(value, package):
    origin = getattr(value, "__module__", None)
    return isinstance(origin, str) and origin.startswith(package)
