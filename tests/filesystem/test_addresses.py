"""From an address and Hadoop's settings to a file system."""

from __future__ import annotations

import doctest
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.filesystem import (
    FileSystemError,
    LocalFileSystem,
    cause_of,
    check_scheme,
    configure,
    file_system_of,
    hadoop_options,
    join,
)
from holdfast.filesystem import hdfs as hdfs_module
from holdfast.filesystem import options as options_module
from holdfast.filesystem.arrow import ArrowFileSystem
from holdfast.filesystem.azure import AzureSettings
from holdfast.filesystem.google import gcs_arguments
from holdfast.filesystem.options import s3_arguments
from services.hadoop import site_xml

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
def test_hdfs_without_its_package_says_what_to_install(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    scheme = uri.partition(":")[0]
    told = rf"cannot connect to '.*': OSError: {scheme}:// needs .* pip install 'holdfast\[hdfs\]'$"
    with pytest.raises(FileSystemError, match=told):
        file_system_of(uri)


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("hdfs://ann@node:8020/x", "no user in the address; set HADOOP_USER_NAME=ann"),
        ("hdfs://cluster/x", "No NameNode hosts found"),
        ("hdfs:///x", "No fs.defaultFS setting found"),
        ("viewfs://cluster/x", "No viewfs fallback mount found"),
    ],
)
def test_an_address_of_hdfs_that_leads_nowhere(
    uri: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FileSystemError, match=f"cannot connect to '{uri[:-2]}': .*{problem}"):
        file_system_of(uri)


@pytest.mark.parametrize("service", [False, True])
def test_a_name_node_that_does_not_answer(service: bool) -> None:
    """A name service has the settings of Hadoop, which may be those of the job."""
    settings = {
        "dfs.ha.namenodes.shop": "one,two",
        "dfs.namenode.rpc-address.shop.one": "127.0.0.1:1",
        "dfs.namenode.rpc-address.shop.two": "127.0.0.1:2",
        "dfs.client.failover.max.attempts": "2",
        "dfs.client.failover.sleep.base.millis": "1",
    }
    uri = "hdfs://shop" if service else "hdfs://127.0.0.1:1"
    with pytest.raises(FileSystemError, match=f"cannot connect to '{uri}'.*Connection refused"):
        file_system_of(f"{uri}/x", settings)


class SilentNameNode:
    """A client whose name node is connected, but stops answering."""

    def __init__(self, *arguments: Any) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.written = b""
        self.closed = False

    def get_file_info(self, path: str) -> Any:
        self.answers.wait()
        return SimpleNamespace(isdir=False, length=3, modification_time=0)

    def create(self, path: str, options: Any) -> SilentNameNode:
        return self

    def write(self, data: bytes) -> int:
        self.answers.wait()
        self.written += data
        return len(data)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentNameNode]:
    client = SilentNameNode()
    fake = SimpleNamespace(Client=lambda *arguments: client, WriteOptions=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "hdfs_native", fake)
    yield client
    client.answers.set()


def test_a_name_node_that_stops_answering_holds_up_no_job(
    silent: SilentNameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ArrowFileSystem("hdfs://node:8020", {})
    assert system.exists("/x")
    monkeypatch.setattr(hdfs_module, "_LONGEST", 0.05)
    silent.answers.clear()
    with pytest.raises(FileSystemError, match=r"look at .*TimeoutError: HDFS has not answered"):
        system.exists("/x")
    out = cast(Any, system)._open("/x")
    with pytest.raises(TimeoutError, match="HDFS has not answered for"):
        out.write(b"123")
    out.close()
    assert not silent.closed  # since the write may still be under way


def test_a_large_file_on_hdfs_is_written_in_pieces(silent: SilentNameNode) -> None:
    data = bytes(range(256)) * 9000
    with cast(Any, ArrowFileSystem("hdfs://node:8020", {}))._open("/x") as out:
        out.write(data)
    assert silent.written == data
    assert silent.closed


@pytest.mark.parametrize("named", [True, False])
def test_a_user_of_hdfs_may_have_no_name_in_the_system(
    named: bool, silent: SilentNameNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000660000")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    if named:
        monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    assert ArrowFileSystem("hdfs://node:8020", {}).exists("/x")
    assert os.environ.get("HADOOP_USER_NAME") == ("ann" if named else None)


@pytest.mark.spark
@pytest.mark.parametrize("where", ["settings", "files"])
def test_a_name_service_of_hdfs(
    hdfs: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its name nodes is down."""
    settings = {
        "fs.defaultFS": "hdfs://shop",
        "dfs.ha.namenodes.shop": "down,up",
        "dfs.namenode.rpc-address.shop.down": "127.0.0.1:1",
        "dfs.namenode.rpc-address.shop.up": hdfs.removeprefix("hdfs://"),
        "dfs.client.failover.sleep.base.millis": "1",
    }
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    if where == "files":
        (tmp_path / "core-site.xml").write_text(site_xml({"fs.defaultFS": "hdfs://shop"}))
        (tmp_path / "hdfs-site.xml").write_text(site_xml(settings))
        settings = {}
    system, path = file_system_of("hdfs://shop/service", settings)
    system.make_directories(path)
    assert file_system_of("hdfs:///service", settings)[0].exists(path)
    assert system.uri(path) == "hdfs://shop/service"


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


KEY_FILE = "fs.gs.auth.service.account.json.keyfile"


@pytest.mark.parametrize(
    ("settings", "expected", "key_file"),
    [
        ({}, {"scheme": "https"}, None),
        (
            {
                "fs.gs.storage.root.url": "http://127.0.0.1:4443/",
                "fs.gs.auth.type": "UNAUTHENTICATED",
                KEY_FILE: "/key.json",
            },
            {"scheme": "http", "endpoint_override": "127.0.0.1:4443", "anonymous": True},
            None,
        ),
        (
            {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", KEY_FILE: "/key.json"},
            {"scheme": "https"},
            "/key.json",
        ),
        (
            {"google.cloud.auth.service.account.json.keyfile": "/older.json"},
            {"scheme": "https"},
            "/older.json",
        ),
        (
            {
                "fs.gs.auth.type": "compute_engine",
                "fs.gs.auth.impersonation.service.account": "ann@shop",
            },
            {"scheme": "https", "target_service_account": "ann@shop"},
            None,
        ),
    ],
)
def test_settings_of_google(
    settings: dict[str, str], expected: dict[str, Any], key_file: str | None
) -> None:
    assert gcs_arguments(settings) == (expected, key_file)
    assert hadoop_options({f"spark.hadoop.{key}": value for key, value in settings.items()}) == (
        settings
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"fs.gs.auth.type": "USER_CREDENTIALS"},
            "fs.gs.auth.type is 'USER_CREDENTIALS'; supported values are APPLICATION_DEFAULT, COMP",
        ),
        (
            {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"},
            f"fs.gs.auth.type is SERVICE_ACCOUNT_JSON_KEYFILE, but {KEY_FILE} is not set",
        ),
    ],
)
def test_settings_of_google_that_make_no_sense(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(FileSystemError, match=f"cannot connect to 'gs://bucket': .*{problem}"):
        file_system_of("gs://bucket/x", settings)


def test_the_key_file_of_google_is_not_left_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    file_system_of("gs://bucket/x", {KEY_FILE: str(tmp_path / "key.json")})
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "own")
    file_system_of("gs://another/x", {KEY_FILE: str(tmp_path / "key.json")})
    assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == "own"


HOST = "ann.dfs.core.windows.net"
KEY = "c2VjcmV0"


@pytest.mark.parametrize(
    ("root", "settings", "expected"),
    [
        (f"abfss://box@{HOST}", {}, {"account_name": "ann"}),
        (
            f"abfss://box@{HOST}",
            {"account.key": "b3RoZXI=", f"account.key.{HOST}": f"{KEY} "},
            {"account_name": "ann", "account_key": KEY},
        ),
        (
            f"abfss://box@{HOST}",
            {f"account.auth.type.{HOST}": "SAS", "sas.fixed.token": "a=b", "account.key": KEY},
            {"account_name": "ann", "sas_token": "?a=b"},
        ),
        (
            f"abfss://box@{HOST}",
            {
                "account.auth.type": "oauth",
                "account.oauth2.client.id": "me",
                "account.oauth2.client.secret": "secret",
                "account.oauth2.client.endpoint": "https://login.example/shop/oauth2/token",
            },
            {
                "account_name": "ann",
                "client_id": "me",
                "client_secret": "secret",
                "tenant_id": "shop",
            },
        ),
        (
            f"abfss://box@{HOST}",
            {"account.auth.type": "OAuth", "account.oauth2.client.id": "me"},
            {"account_name": "ann", "client_id": "me"},
        ),
        (f"abfss://box@{HOST}", {"account.auth.type": "OAuth"}, {"account_name": "ann"}),
        (
            "abfss://box@ann.dfs.core.chinacloudapi.cn",
            {},
            {
                "account_name": "ann",
                "blob_storage_authority": ".blob.core.chinacloudapi.cn",
                "dfs_storage_authority": ".dfs.core.chinacloudapi.cn",
            },
        ),
        *(
            (
                f"{scheme}://box@{HOST}",
                {"abfs.endpoint": endpoint, **more},
                {
                    "account_name": "ann",
                    "blob_storage_authority": "127.0.0.1:10000",
                    "dfs_storage_authority": "127.0.0.1:10000",
                    "blob_storage_scheme": expected,
                    "dfs_storage_scheme": expected,
                },
            )
            for scheme, endpoint, more, expected in (
                ("abfss", "127.0.0.1:10000", {"always.use.https": "false"}, "https"),
                ("abfs", "127.0.0.1:10000", {}, "https"),
                ("abfs", "127.0.0.1:10000", {"always.use.https": "false"}, "http"),
                ("abfss", "http://127.0.0.1:10000", {}, "http"),
            )
        ),
    ],
)
def test_settings_of_azure(root: str, settings: dict[str, str], expected: dict[str, Any]) -> None:
    options = {f"fs.azure.{name}": value for name, value in settings.items()}
    assert AzureSettings(root, options).arguments() == expected


@pytest.mark.parametrize(
    ("root", "settings", "problem"),
    [
        ("abfss://box", {}, "is not an address of Azure, which is abfss://<container>@<account>"),
        (f"abfss://{HOST}", {}, "is not an address of Azure"),
        ("abfs://box@127.0.0.1:10000", {}, "is not an address of Azure, which is abfs://<cont"),
        (
            f"abfss://box@{HOST}",
            {"account.auth.type": "Custom"},
            "fs.azure.account.auth.type is 'Custom'; supported values are SharedKey, SAS, OAuth",
        ),
        (
            f"abfss://box@{HOST}",
            {"account.auth.type": "SharedKey"},
            f"fs.azure.account.key.{HOST} is not set",
        ),
        (
            f"abfss://box@{HOST}",
            {"account.key": "not base64"},
            "fs.azure.account.key is not a key of an account, which is text in base64",
        ),
        (
            f"abfss://box@{HOST}",
            {
                "account.auth.type": "OAuth",
                "account.oauth2.client.secret": "x",
                "account.oauth2.client.endpoint": "https://login.example",
            },
            "fs.azure.account.oauth2.client.endpoint is 'https://login.example', which names no",
        ),
    ],
)
def test_settings_of_azure_that_make_no_sense(
    root: str, settings: dict[str, str], problem: str
) -> None:
    """A key that is not base64 would end the process."""
    options = {f"fs.azure.{name}": value for name, value in settings.items()}
    with pytest.raises(
        FileSystemError, match=f"cannot connect to '{root}': ValueError: .*{problem}"
    ):
        file_system_of(f"{root}/x", options)


@pytest.mark.parametrize(
    ("uri", "message", "expected"),
    [
        (
            "gs://bucket",
            "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of "
            "PerformWork() - CURL error [7]=Could not connect to server error_info={reason=, "
            "metadata={gcloud-cpp.retry.function=ReadObject}})",
            "UNAVAILABLE: PerformWork() - CURL error [7]=Could not connect to server; check the "
            "network, and fs.gs.storage.root.url if it is set",
        ),
        (
            "gs://bucket",
            "google::cloud::Status(PERMISSION_DENIED: no (really)). Detail: [errno 13] Permission",
            f"PERMISSION_DENIED: no (really); check {KEY_FILE}, or the environment variable "
            "GOOGLE_APPLICATION_CREDENTIALS; fs.gs.auth.type=UNAUTHENTICATED sends no credentials",
        ),
        ("gs://bucket", "No such directory: x", "No such directory: x"),
        (
            f"abfss://box@{HOST}",
            "GetProperties for 'https://ann' failed. Azure Error: [] Fail to get a new connection "
            "for: https://ann. Could not resolve hostname\nRequest ID: 1",
            "Fail to get a new connection for: https://ann. Could not resolve hostname; check the "
            "network, the account in the address, and fs.azure.abfs.endpoint if it is set",
        ),
        (
            f"abfss://box@{HOST}",
            "Check on 'https://ann' failed: N5Azure4Core11Credentials23AuthenticationExceptionE: "
            "GetToken(): no credentials",
            f"GetToken(): no credentials; check fs.azure.account.key.{HOST}, or what Azure's own "
            "tools use, such as AZURE_CLIENT_ID",
        ),
        (
            "s3://bucket",
            "When opening: AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7",
            "When opening: AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7; "
            "check the network, and fs.s3a.endpoint if it is set",
        ),
    ],
)
def test_errors_of_stores_are_one_line_with_the_setting_to_check(
    uri: str, message: str, expected: str
) -> None:
    system, path = file_system_of(f"{uri}/x", REGION)
    with pytest.raises(FileSystemError) as error, system.errors("read", path):
        raise OSError(message)
    assert str(error.value) == f"cannot read '{uri}/x': OSError: {expected}"
    again = pickle.loads(pickle.dumps(error.value))
    assert cause_of(again) == cause_of(error.value) == f"OSError: {expected}"


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
    assert doctest.testmod(options_module) == (0, 2)
