"""The environment: where streams begin, what a job is set to, and how it is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from holdfast.common import (
    Configuration,
    Duration,
    ExecutionConfig,
    JobClient,
    JobExecutionResult,
    RestartStrategyConfiguration,
    WatermarkStrategy,
)
from holdfast.common.known_options import warn_unknown_keys
from holdfast.common.restart_options import configured_restart_strategy, put_restart_strategy
from holdfast.common.time import DurationLike, to_millis
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream._watermark_alignment import check_alignment
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.checkpoint_storage import SAVEPOINT_DIRECTORY, path_of
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.collection import CollectionSource
from holdfast.datastream.connectors.dataframe import DataFrameSource
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.datastream.data_stream import CloseableIterator, DataStream
from holdfast.datastream.engines import engine_note
from holdfast.datastream.execution_mode import RUNTIME_MODE, RuntimeExecutionMode, is_batch
from holdfast.datastream.functions import SourceFunction
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import (
    CHANGELOG,
    StateBackend,
    backend_of,
    put_backend,
    state_settings,
)
from holdfast.graph.graph import Graph
from holdfast.graph.nodes import Edge, SourceOperation
from holdfast.plan.explain import explain, to_json
from holdfast.plan.model import Defaults, Plan
from holdfast.plan.planner import make_plan
from holdfast.printable import get_logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamExecutionEnvironment"]

_BUFFER_TIMEOUT = "execution.buffer-timeout.interval"
_CHAINING = "pipeline.operator-chaining.enabled"
_JOB_NAME = "pipeline.name"
_DEFAULT_JOB_NAME = "Holdfast Streaming Job"
_DEFAULT_INTERVAL_MS = 200

_logger = get_logger(__name__)

#: makes an environment with the settings that a program asks for
_Factory: TypeAlias = "Callable[[Configuration | None], StreamExecutionEnvironment]"


class StreamExecutionEnvironment:
    """Builds a graph and runs it on Spark. Nothing runs until ``execute``."""

    _context: ClassVar[_Factory | None] = None

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Use ``get_execution_environment``."""
        self._configuration = Configuration(configuration)
        self._config = ExecutionConfig(self._configuration)
        self._checkpoint_config = CheckpointConfig(self._configuration)
        self._graph = Graph()
        self._shipment = Shipment()
        self._local_parallelism: int | None = None

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """A new environment; jobs use the active Spark session, or make a local one.

        In a program that ``holdfast run`` has started it has the settings of the command line; the
        program's own go before them.
        """
        make = StreamExecutionEnvironment._context or StreamExecutionEnvironment
        return make(configuration)

    @staticmethod
    @contextmanager
    def context_environment(factory: _Factory) -> Iterator[None]:
        """Within it, ``get_execution_environment`` returns what the factory makes.

        For what runs the programs of others, in its own process: it can give them settings, or
        look at their plans. The factory is called with the configuration that the program gives.
        """
        before = StreamExecutionEnvironment._context
        StreamExecutionEnvironment._context = factory
        try:
            yield
        finally:
            StreamExecutionEnvironment._context = before

    # Settings

    def get_config(self) -> ExecutionConfig:
        """The settings, as an object that writes through to the configuration."""
        return self._config

    def configure(self, configuration: Configuration) -> None:
        """Take over all settings of a configuration."""
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """The parallelism of operators that have none of their own."""
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The default parallelism: what was set, or the number of cores of the Spark session."""
        known = self._config.get_parallelism()
        return known if known > 0 else self.get_default_local_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """The number of key groups of operators that have none of their own."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The default max parallelism, or -1."""
        return self._config.get_max_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """The parallelism where neither the environment nor the configuration says one."""
        self._local_parallelism = parallelism

    def get_default_local_parallelism(self) -> int:
        """The number of cores, unless it was set."""
        if self._local_parallelism is not None:
            return self._local_parallelism
        from holdfast.spark.session import default_parallelism

        return default_parallelism()

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set it before the streams: in batch mode reductions give their last value only.

        Every job runs as a stream; ``AUTOMATIC`` is taken for ``STREAMING``.
        """
        self._configuration.set_string(RUNTIME_MODE, execution_mode.value)
        return self

    @property
    def _is_batch(self) -> bool:
        return is_batch(self._configuration)

    def set_buffer_timeout(self, timeout_millis: int | Duration) -> StreamExecutionEnvironment:
        """The interval of epochs in milliseconds: how long a record waits at most for the next."""
        self._configuration.set_string(_BUFFER_TIMEOUT, f"{to_millis(timeout_millis)} ms")
        return self

    def get_buffer_timeout(self) -> int:
        """The interval of epochs in milliseconds."""
        given = self._configuration.get_string(_BUFFER_TIMEOUT, f"{_DEFAULT_INTERVAL_MS} ms")
        return to_millis(given)

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Keep every operator in a chain of its own."""
        self._configuration.set_boolean(_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Whether operators are chained."""
        return self._configuration.get_boolean(_CHAINING, True)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Always: chained operators share a subtask, whatever their key groups."""
        return True

    # Checkpoints and recovery

    def enable_checkpointing(
        self, interval: DurationLike, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Take a checkpoint every ``interval``: milliseconds, or any duration of at least 10 ms."""
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The settings of checkpoints, as an object that writes through to the configuration."""
        return self._checkpoint_config

    def get_checkpoint_interval(self) -> int:
        """The interval of checkpoints in milliseconds, or -1 without checkpoints."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """What a checkpoint promises."""
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """What a checkpoint promises."""
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """What was noted; nothing is aligned, see ``CheckpointConfig``."""
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """What was noted; nothing is aligned, see ``CheckpointConfig``."""
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(
        self, directory: str | os.PathLike[str]
    ) -> StreamExecutionEnvironment:
        """Where savepoints go that are taken without naming a directory."""
        SAVEPOINT_DIRECTORY.put(self._configuration, path_of(directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Where savepoints go that are taken without naming a directory, or None."""
        return self._checkpoint_config.get_savepoint_directory()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """How state is kept; the older backends set the checkpoint storage as well."""
        put_backend(self._configuration, state_backend)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """How state is kept, or None if nothing was set."""
        return backend_of(self._configuration)

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Noted, without effect: every epoch writes the changes of state as it is."""
        CHANGELOG.put(self._configuration, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """What was noted, or None."""
        return CHANGELOG.find(self._configuration)

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """What to do when the job fails; the same as the keys ``restart-strategy.*``."""
        put_restart_strategy(self._configuration, restart_strategy_configuration)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """What was set for when the job fails, or ``RestartStrategies.fall_back_restart()``."""
        return configured_restart_strategy(self._configuration)

    # Files and packages of the workers

    def add_python_file(self, file_path: str) -> None:
        """Send a module, a package or a zip file to the workers of a cluster."""
        self._shipment.python_files.append(file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Send an archive; ``pyspark.SparkFiles.get(target_dir)`` finds it unpacked on a worker."""
        target = target_dir or PurePath(archive_path).name
        self._shipment.archives.append((archive_path, target))

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Send a file; ``pyspark.SparkFiles.get(name)`` finds it on a worker."""
        self._shipment.cached_files[name] = file_path

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Install the packages of a requirements file for the workers when a job starts.

        With a cache directory they are installed from there only, without a network.
        """
        self._shipment.requirements = (requirements_file_path, requirements_cache_dir)

    def set_python_executable(self, python_exec: str) -> None:
        """The interpreter of the workers; it must have what the driver's has."""
        self._shipment.python_executable = python_exec

    # Sources

    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """The records of a list or another finite iterable, in order, in one subtask."""
        source = CollectionSource(list(collection))
        return self._add_source(source, "Source: Collection", type_info, 1)

    def add_source(
        self,
        source_func: SourceFunction,
        source_name: str = "Custom Source",
        type_info: Any = None,
    ) -> DataStream:
        """The records that a source function emits."""
        if not isinstance(source_func, SourceFunction):
            msg = f"add_source: expected a SourceFunction; got {type(source_func).__name__}"
            raise TypeError(msg)
        source = FunctionSource(source_func)
        name = f"Source: {source_name}"
        return self._add_source(source, name, type_info, source.parallelism_limit)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "Source",
        type_info: Any = None,
    ) -> DataStream:
        """The records of a source of ``holdfast.datastream.connectors``.

        Raises:
            JobDefinitionError: when the strategy has a watermark alignment, and the source cannot
                be paused or the strategy makes no watermarks.
        """
        if not isinstance(source, Source):
            msg = f"from_source: expected a Source; got {type(source).__name__}"
            raise TypeError(msg)
        check_alignment(source, watermark_strategy)
        name = f"Source: {source_name}"
        limit = source.parallelism_limit
        return self._add_source(source, name, type_info, limit, watermark_strategy)

    def from_dataframe(self, frame: DataFrame, source_name: str = "DataFrame") -> DataStream:
        """The rows of a streaming or a batch Spark DataFrame, as ``Row`` records."""
        source = DataFrameSource(frame)
        return self._add_source(source, f"Source: {source_name}", None, 1)

    # Running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run what was built since the last execution, until it ends.

        Raises:
            JobDefinitionError: before anything runs, when the program cannot be run.
            JobExecutionError: when the job fails; ``UserFunctionError`` if a function of it does.
        """
        client = self.execute_async(job_name)
        try:
            return client.get_job_execution_result().result()
        except KeyboardInterrupt:
            client.cancel().result()
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start what was built since the last execution."""
        from holdfast.spark.client import start_job

        self._check_configuration()
        plan = self._take_plan(job_name)
        return start_job(plan, self._configuration, self._interval(plan), self._shipment)

    def get_execution_plan(self) -> str:
        """The plan of the next execution, as Flink's JSON."""
        return to_json(self._plan(None))

    def explain(self, job_name: str | None = None) -> str:
        """The plan of the next execution: engine, levels, chains, exchanges, parallelism, uids."""
        plan = self._plan(job_name)
        return explain(plan, engine_note(plan, self._configuration))

    def close(self) -> None:
        """Nothing to let go of: a job cleans up after itself, and the session is the user's."""

    def _execute_and_collect(self, node: int, job_name: str | None) -> CloseableIterator:
        from holdfast.spark.client import collect_job

        self._check_configuration()
        plan = self._take_plan(job_name)
        return collect_job(plan, self._configuration, self._interval(plan), self._shipment, node)

    def _check_configuration(self) -> None:
        warn_unknown_keys(self._configuration)
        state_settings(self._configuration)  # raises if they are wrong

    def _add_source(
        self,
        source: Source,
        name: str,
        type_info: Any,
        parallelism: int | None,
        strategy: WatermarkStrategy | None = None,
    ) -> DataStream:
        gives_time = strategy is not None and strategy != WatermarkStrategy.no_watermarks()
        node = self._graph.add(
            "source",
            name,
            SourceOperation(source, strategy if gives_time else None),
            output_type=type_info_of(type_info),
            parallelism=parallelism,
        )
        return DataStream(self, (Edge(node),))

    def _take_plan(self, job_name: str | None) -> Plan:
        plan = self._plan(job_name)
        self._graph.mark_executed()
        return plan

    def _plan(self, job_name: str | None) -> Plan:
        name = job_name or self._configuration.get_string(_JOB_NAME, _DEFAULT_JOB_NAME)
        limit = self.get_max_parallelism()
        defaults = Defaults(
            self.get_parallelism(), limit if limit > 0 else None, self.is_chaining_enabled()
        )
        return make_plan(self._graph.pending(), defaults, name)

    def _interval(self, plan: Plan) -> int:
        own = [op.node.buffer_timeout for op in plan.operators.values()]
        given = [timeout for timeout in own if timeout is not None]
        return max(0, min([*given, self.get_buffer_timeout()]))
