"""What is secret in a configuration is masked, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.common.secrets import MASK, masked


@pytest.mark.parametrize(
    "key",
    [
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "fs.azure.account.key.x.blob.core.windows.net",
        "rest.token",
        "spark.ssl.keyPassword",
        "my.api-key",
        "security.basic_auth",
        "fs.azure.sas.container",
    ],
)
def test_by_key(key: str) -> None:
    assert masked({key: "hush"}) == {key: MASK}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("s3a://key:hush@bucket/path", f"s3a://key:{MASK}@bucket/path"),
        ("password=hush,user=me", f"password={MASK},user=me"),
        ("-Dx.token=hush -Dy=1", f"-Dx.token={MASK} -Dy=1"),
        ("{'db.password': 'hush'}", None),
        ("10s", "10s"),
        ("s3a://bucket/a:b@c", "s3a://bucket/a:b@c"),
    ],
)
def test_in_values(value: str, shown: str | None) -> None:
    text = masked({"pipeline.global-job-parameters": value})["pipeline.global-job-parameters"]
    assert "hush" not in text
    assert shown is None or text == shown


def test_what_is_not_secret_is_shown() -> None:
    plain = {
        "execution.checkpointing.dir": "s3a://bucket/checkpoints",
        "pipeline.name": "key counts: total=7",
        "parallelism.default": "2",
    }
    assert masked(plain) == plain
