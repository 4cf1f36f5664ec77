"""The command: ``python -m examples.orders``."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import msgspec

from examples.orders.chaos import Chaos, DriverFailed, Supervisor, this_program
from examples.orders.faults import FailOnce
from examples.orders.files import write
from examples.orders.hbase import read_tables
from examples.orders.job import Backend, JobSettings
from examples.orders.kafka import produce, read_topic
from examples.orders.pipeline import PipelineSettings
from examples.orders.progress import Progress
from examples.orders.runner import run
from examples.orders.shop import Shop
from examples.orders.sinks import SinkKind, missing_for
from examples.orders.story import Story
from examples.orders.timeline import open_page, write_page
from examples.orders.verify import table, verify, verify_tables, verify_topics
from examples.orders.view import View, make_view
from holdfast.common import Duration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.filesystem import file_system_of, join

_INTERRUPTED = 130
#: the exit code of a run whose fault never happened
_NOT_REACHED = 2


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders",
        allow_abbrev=False,
        description="An order system with exactly-once state and outputs.",
        epilog="With --chaos the program fails, is rescaled and is killed in the middle. A picture "
        "of that is drawn, and the outputs are compared with a computation over all events. The "
        "exit code is 1 if anything differs. "
        "It is 2 if --fail-at is given and no subtask reads so many events.",
    )
    _add_source(parser.add_argument_group("the events"))
    _add_job(parser.add_argument_group("the job"))
    _add_proof(parser.add_argument_group("the proof"))
    options = parser.parse_args(arguments)
    if options.source == "files" and options.input is None:
        parser.error("--source files needs --input, a directory of files with events")
    kafka = options.source == "kafka" or options.produce or options.to_kafka
    if kafka and options.broker is None:
        parser.error("--source kafka, --produce and --to-kafka need --broker, the address of one")
    ends = options.chaos or options.verify or options.write or options.produce
    if ends and options.events is None:
        parser.error("--chaos, --verify, --write and --produce need --events: an end to come to")
    if (options.chaos or options.verify) and options.sink != "files":
        parser.error("--chaos and --verify read the outputs of --sink files")
    missing = missing_for(options.sink)
    if missing is not None:
        parser.error(missing)
    return options


def _add_source(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--source", choices=["generator", "files", "kafka"], default="generator")
    group.add_argument("--input", type=Path, metavar="DIR", help="files of events, to be read")
    group.add_argument("--write", type=Path, metavar="DIR", help="write the events to files; end")
    group.add_argument("--topic", default="orders", metavar="NAME", help="of events in Kafka")
    group.add_argument("--broker", metavar="HOST:PORT", help="of Kafka")
    group.add_argument("--produce", action="store_true", help="write the events to the topic; end")
    group.add_argument("--events", type=int, metavar="N", help="about how many; without, no end")
    group.add_argument("--rate", type=float, metavar="N", help="events in a second; all at once")
    group.add_argument("--seed", type=int, default=1, metavar="N", help="another one: other events")
    group.add_argument("--duplicates", type=float, default=0.0, metavar="SHARE")
    group.add_argument("--lateness", type=float, default=0.0, metavar="SHARE")
    group.add_argument("--disorder", action="store_true", help="events arrive out of order")


def _add_job(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--sink", choices=get_args(SinkKind), default="files")
    group.add_argument("--to-kafka", action="store_true", help="every output to a topic, too")
    group.add_argument(
        "--to-hbase", metavar="HOST:PORT", help="a Thrift server: tables of orders and stock, too"
    )
    group.add_argument(
        "--directory",
        metavar="DIR",
        help="for outputs and checkpoints; on a cluster an address, such as s3a://bucket/orders",
    )
    group.add_argument("--backend", choices=get_args(Backend), default="rocksdb")
    group.add_argument("--checkpoint-interval", type=float, default=30.0, metavar="SECONDS")
    group.add_argument("--restarts", type=int, default=5, metavar="N")
    group.add_argument("--restart-delay", type=float, default=30.0, metavar="SECONDS")
    group.add_argument("--epoch-interval", type=float, metavar="SECONDS")
    group.add_argument("--parallelism", type=int, metavar="N")
    group.add_argument("--initial-stock", type=int, default=1000, metavar="N")
    group.add_argument(
        "--remember", type=int, default=24, metavar="HOURS", help="how long duplicates may come"
    )


def _add_proof(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--verify", action="store_true", help="compare all outputs at the end")
    group.add_argument(
        "--fail-at", type=int, metavar="N", help="fail once, at a subtask's N-th event"
    )
    group.add_argument("--chaos", action="store_true", help="fail, be rescaled, be killed, verify")
    group.add_argument(
        "--rescale-to", type=int, metavar="N", help="with --chaos: subtasks after the rescaling"
    )
    group.add_argument("--no-browser", action="store_true", help="do not open the picture")
    group.add_argument(
        "--progress", choices=["view", "json"], default="view", help=argparse.SUPPRESS
    )


def settings_of(options: argparse.Namespace, directory: str | Path) -> JobSettings:
    """The settings that a command line asks for."""
    shop = Shop(
        seed=options.seed,
        rate=options.rate,
        duplicates=options.duplicates,
        disorder=options.disorder,
        lateness=options.lateness,
    )
    if options.events is not None:
        shop = replace(shop, slices=shop.slices_for(options.events))
    fault = None
    if options.fail_at is not None or options.chaos:
        marker = join(os.fspath(directory), "failed")
        fault = FailOnce(options.fail_at or _early(options), marker)
    return JobSettings(
        directory=directory,
        shop=shop,
        files=options.input if options.source == "files" else None,
        broker=options.broker or "",
        topic=options.topic,
        from_kafka=options.source == "kafka",
        to_kafka=options.to_kafka,
        hbase=options.to_hbase,
        sink=options.sink,
        backend=options.backend,
        checkpoint_interval=int(options.checkpoint_interval * 1000),
        restarts=options.restarts,
        restart_delay=int(options.restart_delay * 1000),
        epoch_interval=options.epoch_interval and int(options.epoch_interval * 1000),
        parallelism=options.parallelism,
        pipeline=PipelineSettings(
            Duration.of_hours(options.remember), options.initial_stock, fault
        ),
    )


def _early(options: argparse.Namespace) -> int:
    """The event at which a subtask fails: when about a sixth of all events are read."""
    return int(max(1, options.events // 6 // _parallelism(options.parallelism)))


def _parallelism(asked: int | None) -> int:
    """That of the job, before it runs: what the program was asked for, or the environment says."""
    return asked or StreamExecutionEnvironment.get_execution_environment().get_parallelism()


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(arguments)
    with ExitStack() as stack:
        here = _local_directory(options.directory)
        if here is None:
            temporary = tempfile.TemporaryDirectory(prefix="orders-", ignore_cleanup_errors=True)
            log = Path(stack.enter_context(temporary), "driver.log")
        else:
            here.mkdir(parents=True, exist_ok=True)
            log = here / "driver.log"
        settings = settings_of(options, here or options.directory or log.parent)
        try:
            return _do(options, settings, arguments, log)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return _INTERRUPTED
        except DriverFailed as error:
            print(error, file=sys.stderr)
            return 1


def _local_directory(given: str | None) -> Path | None:
    """The directory that the command line names, if it is one of this machine."""
    if given is None:
        return None
    files, path = file_system_of(given)
    return None if files.is_remote else Path(path)


def _do(
    options: argparse.Namespace, settings: JobSettings, arguments: Sequence[str], log: Path
) -> int:
    if options.write is not None:
        print(f"wrote {write(settings.shop, options.write):,} events to {options.write}")
        return 0
    if options.produce:
        written = produce(settings.shop, options.broker, options.topic)
        print(f"wrote {written:,} events to topic {options.topic}")
        return 0
    if options.progress == "json":
        run(settings, _print_json)
        return 0
    view = make_view()
    try:
        if options.chaos:
            supervisor = _supervise(settings, arguments, view, log)
            supervisor.run(_chaos(options))
        else:
            story = Story()
            run(settings, lambda progress: view.update(story.tell(progress)))
    finally:
        view.close()
    code = _prove(options, settings) if options.chaos or options.verify else 0
    if options.chaos:
        _show_picture(supervisor.story, options)
    return code or _check_fault(settings.pipeline.fault)


def _chaos(options: argparse.Namespace) -> Chaos:
    """A rescaling when a third of the events are read; a kill when more than half of them are."""
    events = options.events
    return Chaos(events // 3, _later_parallelism(options), events * 5 // 9, events * 7 // 9)


def _later_parallelism(options: argparse.Namespace) -> int:
    before = _parallelism(options.parallelism)
    return int(options.rescale_to or min(2 * before, before + 2))


def _show_picture(story: Story, options: argparse.Namespace) -> None:
    path = write_page(story, _local_directory(options.directory))
    opened = not options.no_browser and open_page(path)
    print(f"\nwhat happened, as a picture{' (opened in your browser)' if opened else ''}: {path}")


def _check_fault(fault: FailOnce | None) -> int:
    """The exit code of a run that was to fail: a fault that never happened has shown nothing."""
    if fault is None or fault.happened:
        return 0
    print(
        f"--fail-at {fault.number} was never reached: no subtask has read so many events, and "
        "nothing has failed; give a smaller number",
        file=sys.stderr,
    )
    return _NOT_REACHED


def _supervise(
    settings: JobSettings, arguments: Sequence[str], view: View, log: Path
) -> Supervisor:
    """A supervisor for this very command, which is to fail."""
    kept = [argument for argument in arguments if argument not in ("--chaos", "--verify")]
    fault = settings.pipeline.fault
    assert fault is not None
    command = [*kept, "--directory", str(settings.directory), "--progress", "json"]
    command += ["--fail-at", str(fault.number)]
    return Supervisor(this_program(command), log, view)


def _print_json(progress: Progress) -> None:
    print(msgspec.json.encode(progress).decode(), flush=True)


def _prove(options: argparse.Namespace, settings: JobSettings) -> int:
    print("\ncomparing every output with a computation over all events …\n", flush=True)
    pipeline = settings.pipeline
    stock, subtasks = pipeline.initial_stock, _parallelism(settings.parallelism)
    if options.chaos:
        subtasks = max(subtasks, _later_parallelism(options))
    checks = verify(settings.shop, settings.output, initial_stock=stock, subtasks=subtasks)
    if settings.to_kafka:
        topics = partial(read_topic, settings.broker)
        checks += verify_topics(settings.shop, settings.topic, topics, initial_stock=stock)
    if settings.hbase is not None:
        tables = read_tables(settings.hbase)
        checks += verify_tables(settings.shop, tables, initial_stock=stock)
    print(table(checks), flush=True)
    if all(check.passed for check in checks):
        print("\nnothing lost, nothing twice")
        return 0
    print("\nTHE OUTPUTS ARE NOT WHAT THEY SHOULD BE")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
