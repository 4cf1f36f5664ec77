"""A job that fails in the middle, and whose part files have every line exactly once.

Two subtasks write orders to part files. A file appears when the checkpoint that contains it is
complete; until then its lines are in hidden files, and those that a failed run has written are
never seen. Halfway, a function raises once. The job goes back to its last checkpoint and
computes some orders again, and yet:

    failed once, restarted, and wrote 6000 orders to 14 part files: none is lost, none is doubled

``--output PATH`` writes to a path of yours, also one that begins with ``s3a://`` or ``hdfs://``.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from holdfast.common import Configuration, Encoder, RestartStrategies, WatermarkStrategy
from holdfast.datastream import MapFunction, StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.filesystem import file_system_of, join

ORDERS = 6000


class PriceAndFail(MapFunction):
    """Gives an order its price; raises at one of them, once."""

    def __init__(self, marker: Path, fail_at: int) -> None:
        self.marker = marker
        self.fail_at = fail_at

    def map(self, value: int) -> str:
        if value == self.fail_at and not self.marker.exists():
            self.marker.touch()
            msg = f"simulated failure at order {value}"
            raise RuntimeError(msg)
        return f"order-{value:05d},{value % 90 + 10}"


def run(output: str, folder: Path) -> None:
    """Write all orders to part files, with a failure in the middle."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration({"holdfast.epoch.max-records": "250"})
    )
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"{folder}/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 100))
    orders = env.from_source(
        NumberSequenceSource(0, ORDERS - 1), WatermarkStrategy.no_watermarks(), "orders"
    )
    names = OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".csv").build()
    sink = (
        FileSink.for_row_format(output, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(names)
        .build()
    )
    orders.map(PriceAndFail(folder / "failed", ORDERS * 3 // 4)).sink_to(sink)
    env.execute("exactly once")


def part_files(output: str) -> Iterator[list[str]]:
    """The lines of each part file; hidden files are not looked at."""
    system, path = file_system_of(output)
    for status in system.list_directory(path):
        if not status.name.startswith("."):
            yield system.read(join(path, status.name)).decode().splitlines()


def main(output: str | None) -> None:
    """Run the job and look at every line that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        output = output or f"{folder}/out"
        run(output, Path(folder))
        assert (Path(folder) / "failed").exists()
        files = list(part_files(output))
        lines = Counter(line for file in files for line in file)
        expected = {f"order-{number:05d},{number % 90 + 10}" for number in range(ORDERS)}
        lost, doubled = expected - lines.keys(), [line for line in lines if lines[line] > 1]
        if lost or doubled or lines.keys() != expected:
            raise SystemExit(f"{len(lost)} lines are lost, {len(doubled)} are doubled")
        print(
            f"failed once, restarted, and wrote {lines.total()} orders to {len(files)} part files: "
            "none is lost, none is doubled"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write part files exactly once.")
    parser.add_argument("--output", help="a new directory, on any file system; a temporary if not")
    main(parser.parse_args().output)
