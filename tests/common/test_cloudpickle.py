"""Classes of the main program are shipped by value, also after msgspec has looked at them."""

import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import NamedTuple

import msgspec
import pytest

from holdfast.common._cloudpickle import dumps

READ = """
import pickle, sys, msgspec
outer = pickle.load(sys.stdin.buffer)
print(msgspec.msgpack.decode(msgspec.msgpack.encode(outer), type=type(outer)).inner.x)
"""


def test_classes_that_msgspec_has_seen() -> None:
    @dataclasses.dataclass
    class Inner:
        x: int

    class Outer(NamedTuple):
        inner: Inner

    value = Outer(Inner(7))
    encoded = msgspec.msgpack.encode(value)
    assert msgspec.msgpack.decode(encoded, type=Outer) == value  # leaves its notes on both
    child = subprocess.run(
        [sys.executable, "-c", READ], input=dumps(value), capture_output=True, check=True
    )
    assert child.stdout.strip() == b"7"
    assert msgspec.msgpack.decode(encoded, type=Outer) == value


FIELDS = """
import dataclasses, pickle, sys
cls, copies = pickle.load(sys.stdin.buffer)
print([name for name in copies if copies[name] is not getattr(dataclasses, name)])
made = dataclasses.make_dataclass("Derived", [("last", int)], bases=(cls,), kw_only=True)
print(made(1, last=2), [f.default is dataclasses.MISSING for f in dataclasses.fields(cls)])
"""


def test_markers_of_dataclasses_stay_what_they_are() -> None:
    @dataclasses.dataclass
    class Local:
        x: int
        names: list[str] = dataclasses.field(default_factory=list)
        _: dataclasses.KW_ONLY
        y: int = 3

    markers = {
        name: value
        for name, value in vars(dataclasses).items()
        if type(value).__module__ == "dataclasses"
    }
    assert {"MISSING", "KW_ONLY", "_FIELD"} <= markers.keys()
    data = dumps((Local, markers))
    child = subprocess.run(
        [sys.executable, "-c", FIELDS], input=data, capture_output=True, check=True
    )
    assert child.stdout.decode().splitlines() == [
        "[]",
        "Derived(x=1, names=[], y=3, last=2) [True, True, False]",
    ]


@pytest.mark.parametrize("marker", [msgspec.UNSET, msgspec.NODEFAULT, inspect.Parameter.empty])
def test_markers_of_other_libraries_stay_what_they_are(marker: object) -> None:
    assert pickle.loads(dumps(marker)) is marker


def test_structs_of_the_main_program_are_refused() -> None:
    class Local(msgspec.Struct):
        x: int

    with pytest.raises(TypeError, match=r"the msgspec.Struct .*Local cannot be sent to other proc"):
        dumps(Local(1))
