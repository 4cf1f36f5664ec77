"""From an address and Hadoop's settings to a file system."""

from __future__ import annotations

import doctest
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.filesystem import (
    FileSystemError,
    LocalFileSystem,
    check_scheme,
    configure,
    file_system_of,
    hadoop_options,
    join,
)
from holdfast.filesystem import options as options_module
from holdfast.filesystem.arrow import ArrowFileSystem
from holdfast.filesystem.options import s3_arguments

REGION = {"fs.s3a.endpoint.region": "eu-west-1"}


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    configure({})
    yield
    configure({})


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/x/y", "/x/y"),
        ("/x/y/", "/x/y"),
        ("/x/a:b c%20", "/x/a:b c%20"),
        ("file:///x/y", "/x/y"),
        ("file:/x/y/", "/x/y"),
        ("file:///x/a%20b", "/x/a b"),
    ],
)
def test_local_addresses(uri: str, path: str) -> None:
    system, found = file_system_of(uri)
    assert isinstance(system, LocalFileSystem)
    assert found == path
    assert system.uri(found) == path


def test_a_relative_path_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_system_of("x/y")[1] == str(tmp_path / "x" / "y")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/a/b", "bucket/a/b"),
        ("s3a://bucket/a/", "bucket/a"),
        ("s3a://bucket", "bucket"),
        ("gs://bucket/a b", "bucket/a b"),
        ("abfs://box@account.dfs.core.windows.net/a/b", "box/a/b"),
        ("abfss://box@account.dfs.core.windows.net", "box"),
    ],
)
def test_addresses_of_object_stores(uri: str, path: str) -> None:
    system, found = file_system_of(uri, REGION)
    assert isinstance(system, ArrowFileSystem)
    assert found == path
    assert system.uri(found) == uri.rstrip("/")
    assert system.uri(join(found, "x")) == f"{uri.rstrip('/')}/x"


@pytest.mark.parametrize("uri", ["hdfs://node:8020/x", "viewfs://cluster/x", "hdfs:///x"])
def test_hdfs_without_hadoop_says_what_is_missing(
    uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HADOOP_HOME", "JAVA_HOME", "ARROW_LIBHDFS_DIR", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    root = uri.removesuffix("/x")
    with pytest.raises(FileSystemError, match=f"cannot connect to '{root}'.*set HADOOP_HOME"):
        file_system_of(uri)


def test_hdfs_over_http_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.implementations.webhdfs", None)
    with pytest.raises(FileSystemError, match=r"pip install 'holdfast\[webhdfs\]'"):
        file_system_of("webhdfs://node:9870/x")


@pytest.mark.parametrize("uri", ["webhdfs://ann@127.0.0.1:1/x", "swebhdfs://127.0.0.1:1/x"])
def test_hdfs_over_http_that_does_not_answer(uri: str) -> None:
    with pytest.raises(FileSystemError, match=f"cannot connect to '{uri[:-2]}'.*Connection"):
        file_system_of(uri)


def test_an_unknown_scheme() -> None:
    with pytest.raises(ValueError, match="no file system for 'ftp://x/y'; a path begins with / or"):
        file_system_of("ftp://x/y")
    assert check_scheme("s3a://b/k") == "s3a"
    assert check_scheme("/x") == "file"


def test_paths_are_joined_with_one_slash() -> None:
    assert join("/x/", "y", "z") == "/x/y/z"
    assert join("/x", "", "z") == "/x/z"
    assert join("bucket", "a/b/") == "bucket/a/b"
    assert join("/", "x") == "/x"


def test_settings_of_hadoop_among_those_of_spark() -> None:
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "from-spark",
        "fs.s3a.endpoint": "from-hadoop",
        "fs.s3a.access.key": "key",
        "spark.hadoop.mapreduce.x": "no",
        "spark.master": "local",
        "parallelism.default": "2",
    }
    assert hadoop_options(settings) == {
        "fs.s3a.endpoint": "from-spark",
        "fs.s3a.access.key": "key",
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (
            {"access.key": "a", "secret.key": "s", "session.token": "t", "endpoint.region": "r"},
            {"access_key": "a", "secret_key": "s", "session_token": "t", "region": "r"},
        ),
        (
            {"endpoint": "http://minio:9000"},
            {"scheme": "http", "endpoint_override": "minio:9000"},
        ),
        (
            {"endpoint": "minio:9000", "connection.ssl.enabled": "false"},
            {"scheme": "http", "endpoint_override": "minio:9000"},
        ),
        (
            {"endpoint": "s3.eu-west-1.amazonaws.com"},
            {"scheme": "https", "endpoint_override": "s3.eu-west-1.amazonaws.com"},
        ),
        (
            {"endpoint": "https://store", "path.style.access": "false"},
            {
                "scheme": "https",
                "endpoint_override": "store",
                "force_virtual_addressing": True,
            },
        ),
        (
            {"endpoint": "https://store", "path.style.access": "true"},
            {"scheme": "https", "endpoint_override": "store"},
        ),
        ({"path.style.access": "true", "access.key": ""}, {}),
        (
            {"access.key": "all", "bucket.mine.access.key": "own", "bucket.other.region": "x"},
            {"access_key": "own"},
        ),
    ],
)
def test_settings_of_s3(settings: dict[str, str], expected: dict[str, Any]) -> None:
    options = {f"fs.s3a.{name}": value for name, value in settings.items()}
    assert s3_arguments(options, "mine") == expected


def test_the_settings_of_a_process_are_used_where_none_are_given(s3: Any) -> None:
    configure(s3.options)
    system, path = file_system_of(f"{s3.uri}/x")
    system.write(path, b"1")
    again = file_system_of(f"{s3.uri}/x", s3.options)[0]
    assert again is not system
    assert again.read(path) == b"1"


def test_without_settings_the_environment_counts(
    s3: Any, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    system, path = file_system_of(f"{s3.uri}/x")
    system.write(path, b"1")
    assert file_system_of(f"{s3.uri}/x", s3.options)[0].read(path) == b"1"


def test_a_process_connects_once(s3: Any) -> None:
    first = file_system_of(f"{s3.uri}/x", s3.options)[0]
    assert file_system_of(f"{s3.uri}/y", dict(s3.options))[0] is first
    assert pickle.loads(pickle.dumps(first)) is first


def test_credentials_of_the_process_are_not_pickled(s3: Any) -> None:
    configure({**s3.options, "fs.s3a.secret.key": "do-not-tell"})
    system = file_system_of(f"{s3.uri}/x")[0]
    assert b"do-not-tell" not in pickle.dumps(system)


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(options_module) == (0, 1)
