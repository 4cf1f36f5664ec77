import pickle
from io import BytesIO

import pytest

from holdfast.common import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    Row,
    SerializationSchema,
    SimpleStringSchema,
    Types,
    TypeSerializer,
)
from holdfast.common.serialization import RowFieldExtractorSchema
from holdfast.common.serializer import VoidNamespaceSerializer


@pytest.mark.parametrize("charset", ["UTF-8", "UTF-16", "latin-1"])
def test_strings_round_trip(charset):
    schema = SimpleStringSchema(charset)
    assert schema.deserialize(schema.serialize("grün")) == "grün"
    assert schema.get_produced_type() == Types.STRING()
    assert not schema.is_end_of_stream("x")


def test_strings_only():
    with pytest.raises(TypeError, match="SimpleStringSchema writes str; got int: 5"):
        SimpleStringSchema().serialize(5)
    with pytest.raises(LookupError, match="unknown encoding: nope"):
        SimpleStringSchema("nope")


def test_bytes_are_kept():
    schema = ByteArraySchema()
    assert schema.serialize(bytearray(b"ab")) == b"ab"
    assert schema.deserialize(b"ab") == b"ab"
    assert schema.get_produced_type() == Types.PRIMITIVE_ARRAY(Types.BYTE())
    with pytest.raises(TypeError, match="ByteArraySchema writes bytes; got str: 'x'"):
        schema.serialize("x")


def test_row_field_extractor():
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize(Row(1, b"key")) == b"key"
    with pytest.raises(TypeError, match=r"RowFieldExtractorSchema\(1\) writes bytes; got str"):
        schema.serialize(Row(1, "key"))
    with pytest.raises(ValueError, match="Field index must be non-negative, got: -1"):
        RowFieldExtractorSchema(-1)


def test_schemas_of_the_user():
    class Numbers(SerializationSchema, DeserializationSchema):
        def serialize(self, value):
            return str(value).encode()

        def deserialize(self, message):
            return int(message)

    assert Numbers().deserialize(Numbers().serialize(5)) == 5
    assert Numbers().get_produced_type() is None


@pytest.mark.parametrize("base", [SerializationSchema, DeserializationSchema, Encoder])
def test_bases_are_abstract(base):
    with pytest.raises(TypeError, match="abstract"):
        base()


def test_simple_string_encoder():
    assert Encoder.simple_string_encoder().encode("ü") == "ü\n".encode()
    assert Encoder.simple_string_encoder("latin-1").encode("ü") == b"\xfc\n"
    assert Encoder.simple_string_encoder().encode((1, "a")) == b"(1, 'a')\n"


@pytest.mark.parametrize(
    "schema",
    [
        SimpleStringSchema(),
        ByteArraySchema(),
        RowFieldExtractorSchema(0),
        Encoder.simple_string_encoder(),
    ],
)
def test_schemas_are_picklable(schema):
    assert repr(pickle.loads(pickle.dumps(schema))) == repr(schema)


def test_type_serializers():
    class Ints(TypeSerializer[int]):
        def serialize(self, element, stream):
            stream.write(element.to_bytes(8, "big", signed=True))

        def deserialize(self, stream):
            return int.from_bytes(stream.read(8), "big", signed=True)

    stream = BytesIO()
    Ints().serialize(-5, stream)
    stream.seek(0)
    assert Ints().deserialize(stream) == -5
    assert Ints() == Ints()
    assert hash(Ints()) == hash(Ints())
    assert Ints() != VoidNamespaceSerializer()
    assert repr(Ints()) == "Ints()"
    VoidNamespaceSerializer().serialize(b"", stream)
    assert VoidNamespaceSerializer().deserialize(stream) == b""
