"""The page about notebooks, in a Jupyter kernel: its cells, errors in cells, and interrupts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

jupyter = pytest.importorskip("jupyter_client.manager", reason="needs holdfast[dev]")

PAGE = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text()
CELLS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TEXTS = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
SECONDS = 600

#: ends when Spark runs no job any more: a resident job is one job of Spark
UNTIL_NOTHING_RUNS = """
import time
from pyspark.sql import SparkSession

tracker = SparkSession.getActiveSession().sparkContext.statusTracker()
while tracker.getActiveJobsIds():
    time.sleep(0.05)
"""


class Output:
    """What a cell showed."""

    def __init__(self, interrupt_at: str | None = None, interrupt: Any = None) -> None:
        self.printed = ""
        self.shown: list[dict[str, str]] = []
        self.error = ""
        self._interrupt_at, self._interrupt = interrupt_at, interrupt

    def __call__(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            self.printed += content["text"]
            if self._interrupt_at is not None and self._interrupt_at in self.printed:
                self._interrupt_at = None
                self._interrupt()
        elif message["msg_type"] == "error":
            self.error = COLOURS.sub("", "\n".join(content["traceback"]))
        elif "data" in content:
            self.shown.append(content["data"])


class Kernel:
    """A kernel with a Spark session of its own."""

    def __init__(self, directory: Path) -> None:
        self._manager = jupyter.KernelManager()
        self._manager.start_kernel(cwd=str(directory))
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=SECONDS)

    def run(self, code: str, interrupt_at: str | None = None) -> Output:
        """Run a cell; interrupt the kernel when the cell prints that."""
        output = Output(interrupt_at, self._manager.interrupt_kernel)
        self._client.execute_interactive(code, timeout=SECONDS, output_hook=output)
        return output

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path_factory.mktemp("notebook"))
    kernel.run(CELLS[0])
    yield kernel
    kernel.close()


def patient(cell: str) -> str:
    """The cell of a preview, with time enough on a busy machine."""
    changed = cell.replace("preview(n=4)", "preview(n=4, seconds=600)")
    assert changed != cell
    return changed


@pytest.mark.spark
def test_the_cells_of_the_page(kernel: Kernel) -> None:
    build, preview, execute, cancel, loop = CELLS
    (plan,) = kernel.run(build).shown
    assert plan["text/html"].endswith('">')
    assert '<img alt="plan" src="data:image/svg+xml;base64,' in plan["text/html"]
    (table,) = kernel.run(patient(preview)).shown
    assert table["text/plain"] == TEXTS[0].rstrip()
    assert "<td>odd</td><td>1</td>" in table["text/html"]
    (client,) = kernel.run(execute).shown
    assert re.search(r"'totals': (CREATED|INITIALIZING|RUNNING)", client["text/plain"])
    assert "<b>totals</b>" in client["text/html"]
    assert "'totals': CANCELED" in kernel.run(cancel).shown[-1]["text/plain"]
    assert kernel.run(loop).shown[-1]["text/plain"] == "('even', 110)"
    assert kernel.run(UNTIL_NOTHING_RUNS).error == ""


@pytest.mark.spark
def test_an_error_names_the_line_of_the_cell(kernel: Kernel) -> None:
    code = "def share(n):\n    return 100 / n\n\n"
    shown = kernel.run(
        code + "numbers.map(lambda n: n - 1).map(share).name('share').preview(seconds=600)"
    )
    first, _, rest = shown.error.partition("holdfast.errors.")
    assert re.fullmatch(
        r"Traceback \(most recent call last\):\n"
        r"  Cell In\[\d+\], line 4, in <module>\n    numbers\.map.*preview\(seconds=600\)\n",
        first,
    )
    cell = re.compile(r"Cell In\[\d+\]")
    assert cell.sub("Cell In[7]", rest).rstrip() == TEXTS[1].rstrip()


@pytest.mark.spark
def test_a_mistake_names_the_line_of_the_cell(kernel: Kernel) -> None:
    shown = kernel.run("def twice(n):\n    yield 2 * n\n\nnumbers.map(twice)")
    assert re.search(r"map: 'twice' \(Cell In\[\d+\], line 1\) is a generator func", shown.error)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("stream", "body"),
    [
        ("numbers", "import time; time.sleep(600)"),
        ("numbers.filter(lambda n: n == 1)", "pass"),
    ],
    ids=["in the body", "between records"],
)
def test_an_interrupt_of_a_loop_over_records_cancels_the_job(
    kernel: Kernel, stream: str, body: str
) -> None:
    code = (
        f"for record in {stream}.execute_and_collect():\n"
        f"    print('read', record, flush=True)\n    {body}"
    )
    output = kernel.run(code, interrupt_at="read 1")
    assert "KeyboardInterrupt" in output.error
    assert kernel.run(UNTIL_NOTHING_RUNS).error == ""
    (table,) = kernel.run("numbers.preview(n=1, seconds=600)").shown
    assert table["text/plain"] == "value\n-----\n1\n(the first record)"
