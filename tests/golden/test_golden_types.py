"""Values of every type, as released versions and this one have written them, are read the same.

If this fails after a change of the format that was meant, see `test_golden_checkpoints`.
"""

from __future__ import annotations

import inspect

import pytest

import holdfast
from holdfast.common.typeinfo import Types, type_info_of
from holdfast.state.types.plain_values import plain_values
from holdfast.state.types.schema import describe
from holdfast.state.types.schema_of import schema_of
from holdfast.state.types.serializers import Codec
from tests.golden.make import TYPE_FILES
from tests.golden.types import EVOLVED, TYPES, SavedTypes
from tests.state.type_strategies import exactly

VERSIONS = sorted(path.stem for path in TYPE_FILES.glob("*.state"))


@pytest.fixture(params=VERSIONS)
def saved(request: pytest.FixtureRequest) -> SavedTypes:
    return SavedTypes((TYPE_FILES / f"{request.param}.state").read_bytes())


def test_this_version_has_a_file() -> None:
    assert holdfast.__version__ in VERSIONS


def test_every_type_is_in_it() -> None:
    made = {type(type_info_of(declared)) for declared, _ in TYPES.values()}
    factories = [name for name, _ in inspect.getmembers(Types, inspect.isfunction)]
    takes = {"ROW": [[int]], "ROW_NAMED": [["a"], [int]], "TUPLE": [[int]], "MAP": [str, int]}
    for name in factories:
        of_one = [int] if "ARRAY" in name or name == "LIST" else []
        arguments = [] if name == "PICKLED_BYTE_ARRAY" else takes.get(name, of_one)
        assert type(getattr(Types, name)(*arguments)) in made, name


@pytest.mark.parametrize("name", TYPES)
def test_values_come_back(saved: SavedTypes, name: str) -> None:
    declared, values = TYPES[name]
    assert exactly(saved.read(name, declared), values)


@pytest.mark.parametrize("name", EVOLVED)
def test_values_come_back_as_evolved_types(saved: SavedTypes, name: str) -> None:
    declared, values = EVOLVED[name]
    assert exactly(saved.read(name, declared), values)


def test_schemas_are_what_they_were(saved: SavedTypes) -> None:
    sections = saved.sections()
    for name, (declared, _) in TYPES.items():
        assert sections[name].types == (schema_of(type_info_of(declared)),), name
    assert describe(sections["dataclass within"].types[0]) == (
        "list[tuple[Item(id: uuid, price: decimal, tags: set[string], grade: Grade(1, 2), "
        "parts: list[itself]), long]]"
    )


def test_values_can_be_read_without_their_classes(saved: SavedTypes) -> None:
    sections = saved.sections()
    for name, (_, values) in TYPES.items():
        for chunk in sections[name].chunks:
            column = chunk.columns[-1]
            pickles = name in ("pickled", "undeclared objects")
            assert (column.codec is Codec.PICKLE) is pickles, name
            if not pickles:
                assert len(plain_values(sections[name].types[0], column)) <= len(values)
    orders = sections["dataclass"].chunks[0]
    by_id = {o["id"]: o for o in plain_values(sections["dataclass"].types[0], orders.columns[-1])}
    assert by_id["o1"]["sizes"] == {"large": {"width": 3, "height": 4.5}}
    assert by_id["o1"]["what"] == {"name": "t"}
    assert by_id["o1"]["items"][0]["parts"][0]["grade"] == 2
