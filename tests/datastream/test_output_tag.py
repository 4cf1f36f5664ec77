import pickle

import pytest

from holdfast.common import Types
from holdfast.datastream import OutputTag, output_tag


def test_a_tag_is_its_id():
    late = OutputTag("late", Types.STRING())
    assert late == OutputTag("late")
    assert hash(late) == hash(OutputTag("late"))
    assert late != OutputTag("early", Types.STRING())
    assert late != "late"
    assert pickle.loads(pickle.dumps(late)) == late
    assert repr(late) == f"OutputTag('late', {Types.STRING()!r})"


def test_the_type_of_a_tag():
    row = Types.ROW([Types.STRING(), Types.LONG()])
    assert OutputTag("a").type_info == Types.PICKLED_BYTE_ARRAY()
    assert OutputTag("a", Types.LONG()).type_info == Types.LONG()
    assert OutputTag("a", [Types.STRING(), Types.LONG()]).type_info == row
    assert OutputTag("a", int).type_info == Types.LONG()


@pytest.mark.parametrize("tag_id", ["", None, 5])
def test_a_tag_needs_an_id(tag_id):
    with pytest.raises(ValueError, match="the id of a side output must be a non-empty str"):
        OutputTag(tag_id)


def test_a_process_knows_whether_it_has_a_tag(monkeypatch):
    data = pickle.dumps(OutputTag("late"))
    monkeypatch.setattr(output_tag, "TAGS_EXIST", [])
    pickle.loads(data)
    assert output_tag.TAGS_EXIST
