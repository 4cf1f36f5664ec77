"""Hadoop's settings for file systems, so that a Spark user needs no second configuration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

_IN_SPARK: Final = "spark.hadoop."
#: the second and the third: of HDFS; the last: of older connectors for Google Cloud
_HADOOP: Final = ("fs.", "dfs.", "hadoop.security.authentication", "google.cloud.auth.")
_S3A: Final = "fs.s3a."

_settings: Mapping[str, str] = MappingProxyType({})


def hadoop_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Hadoop file systems among others.

    They are keys that begin with ``fs.``, ``dfs.`` or ``google.cloud.auth.``, as in Hadoop's
    configuration, or with these and ``spark.hadoop.`` before them, as in Spark's; the latter win.

    >>> hadoop_options({"spark.hadoop.fs.s3a.endpoint": "minio:9000", "spark.app.name": "x"})
    {'fs.s3a.endpoint': 'minio:9000'}
    """
    plain = {key: value for key, value in settings.items() if key.startswith(_HADOOP)}
    spark = {
        key.removeprefix(_IN_SPARK): value
        for key, value in settings.items()
        if key.startswith(tuple(_IN_SPARK + known for known in _HADOOP))
    }
    return plain | spark


def configure(options: Mapping[str, str]) -> None:
    """Set the options of this process for file systems that have no options of their own.

    The driver and every worker call it when a job starts. So a file system that was made without
    options can be pickled without credentials in it.
    """
    global _settings
    _settings = MappingProxyType(dict(options))


def configured() -> Mapping[str, str]:
    """Return the options of this process."""
    return _settings


def s3_arguments(options: Mapping[str, str], bucket: str) -> dict[str, Any]:
    """Return the arguments of ``pyarrow.fs.S3FileSystem`` for Hadoop's settings of S3A.

    A setting for one bucket, ``fs.s3a.bucket.<bucket>.<name>``, overrides the general one. What
    is not set is left to pyarrow, which finds credentials where AWS's own tools do.
    """

    def setting(name: str) -> str | None:
        general = options.get(_S3A + name)
        return options.get(f"{_S3A}bucket.{bucket}.{name}", general) or None

    endpoint = setting("endpoint")
    secure = is_true(setting("connection.ssl.enabled"), default=True)
    arguments: dict[str, Any] = {
        "access_key": setting("access.key"),
        "secret_key": setting("secret.key"),
        "session_token": setting("session.token"),
        "region": setting("endpoint.region"),
        **(_endpoint(endpoint, secure) if endpoint else {}),
    }
    if endpoint and not is_true(setting("path.style.access"), default=True):
        arguments["force_virtual_addressing"] = True
    return {name: value for name, value in arguments.items() if value is not None}


def _endpoint(endpoint: str, secure: bool) -> dict[str, str]:
    scheme, address = scheme_and_address(endpoint, secure)
    return {"scheme": scheme, "endpoint_override": address}


def scheme_and_address(endpoint: str, secure: bool = True) -> tuple[str, str]:
    """Return the scheme and ``host[:port]`` of an endpoint; if it has no scheme, HTTPS or HTTP.

    >>> scheme_and_address("http://127.0.0.1:9000/"), scheme_and_address("store.example")
    (('http', '127.0.0.1:9000'), ('https', 'store.example'))
    """
    scheme = "https" if secure else "http"
    split = urlsplit(endpoint if "://" in endpoint else f"{scheme}://{endpoint}")
    return split.scheme, split.netloc


def is_true(value: str | None, default: bool) -> bool:
    """Return a setting's value, or the default if it is not set."""
    return default if value is None else value.strip().lower() == "true"
