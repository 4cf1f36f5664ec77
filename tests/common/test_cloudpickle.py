"""Classes of the main program are shipped by value, also after msgspec has looked at them."""

import dataclasses
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


def test_structs_of_the_main_program_are_refused() -> None:
    class Local(msgspec.Struct):
        x: int

    with pytest.raises(TypeError, match=r"the msgspec.Struct .*Local cannot be sent to other proc"):
        dumps(Local(1))
