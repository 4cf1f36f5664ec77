"""What a cluster's executors need to find the driver, each other and the program's packages."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from tests.standalone import Standalone, standalone

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.slow]

#: prints the ports at which the process of a source function listens
LISTENERS = """
import json, os

from holdfast.datastream import SourceFunction, StreamExecutionEnvironment


def listening():
    own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd > "2"}
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    listeners = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
    return [int(row[1].split(":")[1], 16) for row in listeners]


class Ports(SourceFunction):
    def run(self, ctx):
        ctx.collect(listening())

    def cancel(self):
        pass


env = StreamExecutionEnvironment.get_execution_environment()
ports = env.add_source(Ports(), "ports").key_by(lambda each: each[0]).map(lambda each: each)
print(json.dumps(list(ports.execute_and_collect())))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def some_ports(number: int) -> range:
    """Ports from which the system deals none out by itself."""
    first = random.randrange(12_000, 30_000)
    return range(first, first + number)


def setting(ports: range) -> str:
    return f"holdfast.port.range={ports[0]}-{ports[-1]}"


@contextmanager
def relay(gate: str, target: str, ports: range) -> Iterator[list[int]]:
    """Pass connections on from one address to another, at the same ports; yields those used."""
    used: list[int] = []

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with closing(source), closing(sink), suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def accept(listener: socket.socket, port: int) -> None:
        with suppress(OSError):
            while True:
                came, _ = listener.accept()
                used.append(port)
                onward = socket.create_connection((target, port))
                for pair in ((came, onward), (onward.dup(), came.dup())):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    with ExitStack() as listeners:
        for port in ports:
            listener = listeners.enter_context(socket.create_server((gate, port)))
            listeners.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=accept, args=(listener, port), daemon=True).start()
        yield used


@pytest.mark.parametrize("engine", ["resident", "epochs"])
def test_slots_and_source_processes_listen_in_the_range(cluster: Standalone, engine: str) -> None:
    ports = some_ports(100)
    settings = (f"holdfast.engine={engine}", f"holdfast.directory={cluster.folder / 'shared'}")
    done = cluster.run(LISTENERS, setting(ports), *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    ((port,),) = json.loads(done.stdout)
    assert port in ports


@pytest.mark.engine("resident")
def test_executors_look_for_the_driver_at_its_host_and_not_where_it_listens(
    cluster: Standalone,
) -> None:
    ports = some_ports(100)
    of_spark, of_holdfast = ports[:2], ports[2:]
    with relay("127.0.0.3", "127.0.0.1", ports) as used:
        done = cluster.run(
            LISTENERS,
            setting(of_holdfast),
            f"spark.driver.port={of_spark[0]}",
            f"spark.driver.blockManager.port={of_spark[1]}",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.driver.host=127.0.0.3",
        )
    assert done.returncode == 0, done.stdout + done.stderr
    # the driver has the first port of the range, at the address that it was told to bind to
    assert used.count(of_holdfast[0]) == 2
    assert of_spark[0] in used


@pytest.mark.engine("resident")
def test_a_range_without_a_free_port_is_one_line_that_names_the_setting(
    cluster: Standalone,
) -> None:
    ports = some_ports(1)
    with socket.create_server(("0.0.0.0", ports[0])):
        done = cluster.run(LISTENERS, setting(ports))
    message = f"no port from {ports[0]} to {ports[0]} is free at "
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert message in last, done.stderr
    assert last.endswith("set 'holdfast.port.range' to a larger range")


@pytest.mark.engine("resident")
def test_a_slot_that_finds_no_free_port_says_so_in_the_driver(cluster: Standalone) -> None:
    ports = some_ports(1)
    # the driver has the only port, and so has at most one of the two slots
    done = cluster.run(LISTENERS, setting(ports), "spark.driver.bindAddress=0.0.0.0")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"no port from {ports[0]} to {ports[0]} is free at " in last, done.stderr
    assert last.endswith("set 'holdfast.port.range' to a larger range")
    assert "Py4J" not in done.stderr
