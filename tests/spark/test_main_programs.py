"""State whose classes are defined in the main program, which goes to the workers by value."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.state.errors import StateMigrationError
from tests.spark.witness import until

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.spark, pytest.mark.matrix]

#: much longer than a savepoint
WAIT = 600.0
NUMBERS = 20_000

PROGRAM = """
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from pathlib import Path

from holdfast.common import Configuration
from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from holdfast.datastream.state import ValueStateDescriptor
from tests.gates import Exists, Numbers


class Stage(Enum):
    NEW = "new"
    PAID = "paid"


@dataclass
class Order:
    item: str
    stage: Stage
{fields}


class Orders(KeyedProcessFunction):
    def open(self, runtime_context):
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Order))

    def process_element(self, value, ctx):
        order = self.order.value()
        if order is None:
            self.order.update(Order("kelp", Stage.PAID))
            (Path({folder!r}) / f"order-{{ctx.get_current_key()}}").touch()
        elif value >= {last}:
            yield repr(order), order.stage is Stage.PAID


def orders(directory, savepoint, epoch):
    settings = {{"holdfast.epoch.max-records": str(epoch)}}
    if savepoint is not None:
        settings["execution.state-recovery.path"] = savepoint
    env = StreamExecutionEnvironment(Configuration(settings))
    env.set_parallelism(2).set_buffer_timeout(0).enable_checkpointing(3_600_000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(Path(directory).as_uri())
    source = Numbers({last} + 2, {{1000: Exists(Path({folder!r}) / "go on")}})
    numbers = env.from_source(source).uid("numbers").set_parallelism(1)
    return numbers.key_by(lambda n: n % 2).process(Orders()).uid("orders").name("Orders")


result = run(orders)
"""


def run_program(directory: Path, fields: str, run: Callable[[Callable[..., Any]], Any]) -> Any:
    """Run the program as the main one; return what ``run`` makes of its job.

    The source waits for a file after 1,000 numbers.
    """
    directory.mkdir()
    program = directory / "program.py"
    program.write_text(PROGRAM.format(fields=fields, last=NUMBERS - 2, folder=str(directory)))
    return runpy.run_path(str(program), {"run": run}, run_name="__main__")["result"]


@pytest.fixture(scope="module")
def savepoint(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Orders as the first version of the program has saved them."""
    directory = tmp_path_factory.mktemp("first")

    def stop(job: Callable[..., Any]) -> str:
        stream = job(directory / "checkpoints", None, 100)
        stream.print()
        client = stream.get_execution_environment().execute_async("orders")
        until(lambda: all((directory / "program" / f"order-{key}").exists() for key in (0, 1)))
        path: str = client.stop_with_savepoint(False, str(directory)).result(WAIT)
        client.get_job_execution_result().result(WAIT)
        return path

    return run_program(directory / "program", "", stop)  # type: ignore[no-any-return]


def rest(directory: Path, savepoint: str, fields: str) -> list[Any]:
    """What another version of the program gives that goes on from there."""

    def collect(job: Callable[..., Any]) -> list[Any]:
        (directory / "program" / "go on").touch()
        return list(job(directory / "checkpoints", savepoint, NUMBERS).execute_and_collect())

    return run_program(directory / "program", fields, collect)  # type: ignore[no-any-return]


def test_a_new_field_without_a_default_is_refused(savepoint: str, tmp_path: Path) -> None:
    with pytest.raises(
        StateMigrationError,
        match=r"state 'order' of operator 'orders'.* price: it is new and has no default",
    ):
        rest(tmp_path, savepoint, "    price: float")


def test_new_fields_have_their_defaults(savepoint: str, tmp_path: Path) -> None:
    fields = """
    price: float = 2.5
    notes: list[str] = field(default_factory=list)
    _: KW_ONLY
    paid: bool = False
    """
    expected = (
        "Order(item='kelp', stage=<Stage.PAID: 'paid'>, price=2.5, notes=[], paid=False)",
        True,
    )
    assert rest(tmp_path, savepoint, fields) == [expected] * 2
