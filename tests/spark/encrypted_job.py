"""A program for a session that encrypts its network: what the sockets of a job say.

It runs a job on each engine, and asks each IP socket of it while it runs. It prints a line of JSON
for each engine.
"""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.runtime.network.addresses import Address
from tests.endless import Endless
from tests.strangers import Sockets, knock

KEYS = 10
RECORDS = 100


def ask(address: Address) -> dict[str, Any]:
    """What a socket says to a peer without TLS, and to one with TLS and without a certificate."""
    told: dict[str, Any] = {}
    with knock(address) as plain, suppress(OSError):
        # how a handshake without TLS begins, which is answered with as many bytes
        plain.sendall(bytes(32))
        told["plain"] = len(plain.recv(32, socket.MSG_WAITALL))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(knock(address)) as encrypted:
        told["version"] = encrypted.version()
        certificate = encrypted.getpeercert(binary_form=True)
        told["certificate"] = ssl.DER_cert_to_PEM_cert(certificate or b"")
        # NB: a server of TLS 1.3 asks for the client's certificate after the client's handshake
        with suppress(OSError):
            told["encrypted"] = len(encrypted.recv(32))
    return told


def run(engine: str) -> dict[str, Any]:
    """Run the job on an engine, and ask its sockets while it runs."""
    with pytest.MonkeyPatch.context() as patch:
        sockets = Sockets(patch)
        settings = Configuration({"holdfast.engine": engine, "holdfast.epoch.max-records": "50"})
        environment = StreamExecutionEnvironment.get_execution_environment(settings)
        environment.set_parallelism(2).set_buffer_timeout(0)
        numbers = environment.add_source(Endless()).key_by(lambda number: number % KEYS)
        records = numbers.reduce(max).execute_and_collect("encrypted")
        seen = [next(records) for _ in range(RECORDS)]
        asked = [ask(found) for found in sockets.addresses() if found.host]
        seen += [next(records) for _ in range(RECORDS)]
        records.close()
    return {
        "engine": engine,
        "right": all(is_whole([n for n in seen if n % KEYS == key], key) for key in range(KEYS)),
        "sockets": asked,
    }


def is_whole(seen: list[int], key: int) -> bool:
    """Whether the records of a key are all numbers from its first one on, in order."""
    return seen == list(range(key, key + KEYS * len(seen), KEYS))


def main() -> None:
    """Run the job on both engines."""
    for engine in ("resident", "epochs"):
        print(json.dumps(run(engine)), flush=True)
