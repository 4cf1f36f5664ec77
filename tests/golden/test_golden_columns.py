"""State in columns that an earlier version wrote is read with all its keys and values."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.state.backend import DirectoryStateStorage, Head
from holdfast.state.column_keys import python_keys
from tests.golden import columns


@pytest.mark.parametrize("operator", sorted(columns.OPERATORS))
def test_state_in_columns_is_read(operator: str) -> None:
    backend = columns.backend()
    head = msgspec.json.decode((columns.FILES / columns.HEAD).read_bytes(), type=Head)
    backend.restore(DirectoryStateStorage(columns.FILES), head)
    keys, namespaced, descriptors = columns.OPERATORS[operator]
    for descriptor in descriptors:
        backend.column_state(operator, descriptor, namespaced)
        found = {key: value for key, _, value in backend.entries(operator, descriptor.name)}
        every = dict(zip(python_keys(keys), columns.VALUES[descriptor.name], strict=True))
        every.pop(python_keys(keys)[1])
        assert found == every, descriptor.name
        assert {s for _, s, _ in backend.entries(operator, descriptor.name)} <= {None, 0}
