"""The job as it is run: its settings, its source, and its environment."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from examples.orders.files import decode_event
from examples.orders.generator import GeneratorSource
from examples.orders.hbase import attach_tables
from examples.orders.kafka import attach_topics, kafka_source
from examples.orders.pipeline import PipelineSettings, build, watermarks
from examples.orders.shop import PARTITIONS, Shop
from examples.orders.sinks import SinkKind, attach
from holdfast.common import Configuration, RestartStrategies, Time, WatermarkStrategy
from holdfast.datastream import (
    CheckpointingMode,
    DataStream,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointCleanup,
    HashMapStateBackend,
    StateBackend,
    StreamExecutionEnvironment,
)
from holdfast.datastream.connectors.file_system import FileSource, StreamFormat
from holdfast.filesystem import join

__all__ = ["NAME", "Backend", "JobSettings", "environment", "events", "prepare"]

NAME = "orders"

_PACKAGE = os.fspath(Path(__file__).parents[1])

Backend = Literal["rocksdb", "hashmap"]


@dataclass(frozen=True)
class JobSettings:
    """How the job is run; by default as one would in production.

    Attributes:
        directory: where outputs and checkpoints go: a path, or an address that all machines of a
            cluster can reach, such as ``s3a://bucket/orders``.
        shop: the source of events, unless there are files.
        files: a directory of files with events.
        broker: the address of a broker of Kafka.
        topic: of events; those of the outputs begin with it.
        from_kafka: whether events come from the topic.
        to_kafka: whether every output is written to a topic, too.
        hbase: the address of a Thrift server, to keep tables of orders and stock there, too.
        checkpoint_interval: in milliseconds, as are the others.
        epoch_interval: None for Holdfast's own.
        parallelism: None for the number of cores.
    """

    directory: str | Path
    shop: Shop = field(default_factory=Shop)
    files: Path | None = None
    broker: str = ""
    topic: str = "orders"
    from_kafka: bool = False
    to_kafka: bool = False
    hbase: str | None = None
    sink: SinkKind = "files"
    backend: Backend = "rocksdb"
    checkpoint_interval: int = 30_000
    restarts: int = 5
    restart_delay: int = 30_000
    epoch_interval: int | None = None
    parallelism: int | None = None
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)

    @property
    def output(self) -> str:
        """The directory of the outputs."""
        return self.place("output")

    def place(self, name: str) -> str:
        """A file or a directory in the directory of the job."""
        return join(os.fspath(self.directory), name)


def environment(
    settings: JobSettings, configuration: Configuration | None = None
) -> StreamExecutionEnvironment:
    """An environment with checkpoints, restarts and a state backend."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    if settings.parallelism is not None:
        env.set_parallelism(settings.parallelism)
    if settings.epoch_interval is not None:
        env.set_buffer_timeout(settings.epoch_interval)
    env.enable_checkpointing(settings.checkpoint_interval)
    config = env.get_checkpoint_config()
    config.set_checkpointing_mode(CheckpointingMode.EXACTLY_ONCE)
    config.set_checkpoint_timeout(600_000)
    config.set_max_concurrent_checkpoints(1)
    config.set_min_pause_between_checkpoints(settings.checkpoint_interval)
    config.enable_externalized_checkpoints(ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION)
    config.set_fail_on_checkpointing_errors(True)
    config.set_checkpoint_storage_dir(settings.place("checkpoints"))
    backends: dict[Backend, type[StateBackend]] = {
        "rocksdb": EmbeddedRocksDBStateBackend,
        "hashmap": HashMapStateBackend,
    }
    env.set_state_backend(backends[settings.backend]())
    env.set_restart_strategy(
        RestartStrategies.fixed_delay_restart(
            settings.restarts, Time.milliseconds(settings.restart_delay)
        )
    )
    return env


def prepare(settings: JobSettings) -> StreamExecutionEnvironment:
    """The whole job, from its source to its sinks, ready to be executed."""
    env = environment(settings)
    env.add_python_file(_PACKAGE)  # the functions, for the workers of a cluster
    outputs = build(events(env, settings), settings.pipeline)
    attach(outputs, settings.sink, settings.output)
    if settings.to_kafka:
        attach_topics(outputs, settings.broker, settings.topic)
    if settings.hbase is not None:
        attach_tables(outputs, settings.hbase)
    return env


def events(env: StreamExecutionEnvironment, settings: JobSettings) -> DataStream:
    """The stream of events, with timestamps and watermarks."""
    if settings.from_kafka:
        ends = settings.shop.slices is not None
        kafka = kafka_source(settings.broker, settings.topic, ends=ends)
        return env.from_source(kafka, watermarks(), "kafka").uid("kafka")
    if settings.files is None:
        source = env.from_source(GeneratorSource(settings.shop), watermarks(), "events")
        return source.set_parallelism(min(PARTITIONS, env.get_parallelism())).uid("events")
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(settings.files)
    )
    source = env.from_source(lines.build(), WatermarkStrategy.no_watermarks(), "files")
    parsed = source.uid("files").map(decode_event).name("parse")
    return parsed.assign_timestamps_and_watermarks(watermarks()).uid("event-time")
