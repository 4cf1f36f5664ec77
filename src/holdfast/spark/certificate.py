"""A certificate for the processes of one job, created with the JDK's keytool."""

from __future__ import annotations

import base64
import secrets
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark import SparkContext

from holdfast.common.private import user_directory
from holdfast.errors import JobExecutionError

#: Spark's settings that encrypt its own network traffic
_ENCRYPTED: Final = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
_NAME: Final = "holdfast"
_DAYS: Final = "3650"
_PASSWORD: Final = "HOLDFAST_STORE"


def encrypts_network(context: SparkContext) -> bool:
    """Return whether a session encrypts the traffic between its processes.

    Spark reads a setting whatever its case is, and Python writes it as ``True``.
    """
    conf = context.getConf()
    return any((conf.get(key) or "").strip().lower() == "true" for key in _ENCRYPTED)


def make_certificate(context: SparkContext) -> bytes:
    """Return a new certificate and its private key, in PEM.

    Raises:
        JobExecutionError: if the JDK cannot create one.
    """
    jvm = context._jvm
    assert jvm is not None
    keytool = Path(jvm.java.lang.System.getProperty("java.home"), "bin", "keytool")
    password = secrets.token_hex(16)
    with TemporaryDirectory(dir=user_directory()) as directory:
        store = Path(directory, "store.p12")
        access = ["-alias", _NAME, "-keystore", str(store), "-storepass:env", _PASSWORD]
        make = ["-genkeypair", "-storetype", "PKCS12", "-dname", f"CN={_NAME}", "-validity", _DAYS]
        make += ["-keyalg", "EC", "-groupname", "secp256r1"]
        _run(keytool, [*make, *access], password)
        certificate = _run(keytool, ["-exportcert", "-rfc", *access], password)
        key = _private_key(context, store, password)
    body = base64.encodebytes(key).decode()
    return f"{certificate}\n-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n".encode()


def _private_key(context: SparkContext, store: Path, password: str) -> bytes:
    """Read the private key with the JVM, because keytool does not export it."""
    jvm = context._jvm
    assert jvm is not None
    stream = jvm.java.io.FileInputStream(str(store))
    try:
        secret = _characters(context, password)
        keys = jvm.java.security.KeyStore.getInstance("PKCS12")
        keys.load(stream, secret)
    finally:
        stream.close()
    # NB: Py4J has no access to the key's own class
    plain = jvm.java.lang.Class.forName("java.security.spec.PKCS8EncodedKeySpec")
    factory = jvm.java.security.KeyFactory.getInstance("EC")
    return bytes(factory.getKeySpec(keys.getKey(_NAME, secret), plain).getEncoded())


def _characters(context: SparkContext, text: str) -> Any:
    """Return a text as the JVM's array of characters."""
    assert context._gateway is not None
    assert context._jvm is not None
    characters = context._gateway.new_array(context._jvm.char, len(text))
    for place, character in enumerate(text):
        characters[place] = character
    return characters


def _run(keytool: Path, arguments: list[str], password: str) -> str:
    try:
        done = subprocess.run(
            [str(keytool), *arguments],
            check=True,
            capture_output=True,
            text=True,
            env={_PASSWORD: password},
        )
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stdout", "") or error
        raise JobExecutionError(
            "the session encrypts its network, but creating a certificate for the job's own "
            f"connections with '{keytool}' failed: {told}; check that this JDK is complete"
        ) from error
    return done.stdout
