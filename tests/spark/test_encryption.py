"""A session that encrypts its network: the job's own connections use TLS, too."""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.errors import JobExecutionError
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import connect
from holdfast.spark.certificate import encrypts_network, make_certificate
from tests.runtime.test_tls import PATIENCE, listening
from tests.standalone import ROOT, standalone

pytestmark = pytest.mark.spark

PROGRAM = "from tests.spark.encrypted_job import main\n\nmain()\n"


@pytest.fixture(scope="module")
def certificate(spark: Any) -> bytes:
    """As a job makes it."""
    return make_certificate(spark.sparkContext)


def test_a_certificate_is_valid_now_and_for_years(certificate: bytes) -> None:
    made = x509.load_pem_x509_certificate(certificate)
    assert made.not_valid_before_utc.timestamp() <= time.time()
    assert made.not_valid_after_utc.timestamp() > time.time() + 9 * 365 * 86_400
    key = serialization.load_pem_private_key(certificate, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == made.public_key()


def test_each_job_has_its_own(spark: Any, certificate: bytes) -> None:
    other = make_certificate(spark.sparkContext)
    sent = secrets.token_bytes(100_000)
    with listening(certificate) as (address, came):
        with pytest.raises(PeerError):
            connect(address, 1.0, other)
        with closing(connect(address, PATIENCE, certificate)) as line:
            line.send(b"head", sent)
            assert bytes(came.result(PATIENCE).receive().data) == sent


def test_an_incomplete_jdk_is_an_error_that_says_so(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = spark.sparkContext._jvm.java.lang.System
    home = system.getProperty("java.home")
    system.setProperty("java.home", "/nowhere")
    try:
        with pytest.raises(JobExecutionError, match=r"'/nowhere/bin/keytool' failed: .*complete"):
            make_certificate(spark.sparkContext)
    finally:
        system.setProperty("java.home", home)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"spark.authenticate": "true"}, False),
        ({"spark.network.crypto.enabled": "false"}, False),
        ({"spark.network.crypto.enabled": "true"}, True),
        ({"spark.authenticate.enableSaslEncryption": "true"}, True),
        ({"spark.ssl.rpc.enabled": "true"}, True),
        # as Python writes it: SparkConf().set("spark.network.crypto.enabled", True)
        ({"spark.network.crypto.enabled": "True"}, True),
    ],
)
def test_connections_are_encrypted_if_spark_encrypts_its_own(
    settings: dict[str, str], expected: bool
) -> None:
    context = SimpleNamespace(getConf=lambda: settings)
    assert encrypts_network(cast(Any, context)) == expected


@pytest.mark.timeout(900)
def test_every_socket_of_a_job_speaks_tls_only(tmp_path: Path) -> None:
    """With two executors as if on two hosts."""
    encrypted = ["spark.authenticate=true", f"spark.authenticate.secret={secrets.token_hex(8)}"]
    encrypted.append("spark.network.crypto.enabled=true")
    with standalone(tmp_path, settings=encrypted) as cluster:
        done = cluster.run(
            PROGRAM,
            *encrypted,
            "spark.executor.cores=1",
            environment={"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
    assert done.returncode == 0, done.stderr
    found = {told["engine"]: told for told in map(json.loads, done.stdout.splitlines())}
    assert set(found) == {"resident", "epochs"}
    for told in found.values():
        assert told["right"], "each number once, in order"
        certificates = set()
        for asked in told["sockets"]:
            certificates.add(asked.pop("certificate"))
            # a connection that is reset has not been answered either
            answers = asked.pop("plain", 0), asked.pop("encrypted", 0)
            assert (asked, answers) == ({"version": "TLSv1.3"}, (0, 0))
        assert len(certificates) == 1, "one for all processes of a job"
    # the driver's two, and those of two slots, or of two homes
    assert min(len(told["sockets"]) for told in found.values()) >= 4
