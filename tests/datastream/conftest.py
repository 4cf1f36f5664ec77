"""Fixtures of the tests of streams."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.filesystem import configure


@pytest.fixture(params=["local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a new directory; see `tests/datastream/places.py`."""
    if request.param == "hdfs":
        yield f"{request.getfixturevalue('hdfs')}/{uuid.uuid4().hex}"
    elif request.param == "s3":
        bucket = request.getfixturevalue("s3")
        configure(bucket.options)
        yield bucket.uri
        configure({})
    else:
        yield str(tmp_path)
