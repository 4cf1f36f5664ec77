"""The environment: sources of streams, settings of a job, and its execution."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

from holdfast.common import (
    Configuration,
    Duration,
    ExecutionConfig,
    JobClient,
    JobExecutionResult,
    RestartStrategies,
    RestartStrategyConfiguration,
    WatermarkStrategy,
)
from holdfast.common.options.restart import configured_restart_strategy, put_restart_strategy
from holdfast.common.options.setting import flag, text
from holdfast.common.time import DurationLike, to_millis
from holdfast.common.typeinfo import type_info_of
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.checkpoint_storage import SAVEPOINT_DIRECTORY, path_of
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.columns.types import BatchTypeInfo, is_record_batch
from holdfast.datastream.configuration_check import check_configuration
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.collection import CollectionSource
from holdfast.datastream.connectors.dataframe import DataFrameSource
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.datastream.data_stream import CloseableIterator, DataStream
from holdfast.datastream.engines import Launcher, default_parallelism, engine_note, launcher
from holdfast.datastream.execution_mode import RUNTIME_MODE, RuntimeExecutionMode, is_batch
from holdfast.datastream.functions import SourceFunction
from holdfast.datastream.missing_sink import check_sinks
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import (
    CHANGELOG,
    StateBackend,
    backend_of,
    put_backend,
)
from holdfast.datastream.streams.function_checks import check_object, kind_of
from holdfast.datastream.streams.preview import show, take
from holdfast.datastream.streams.watermark_alignment import check_alignment
from holdfast.errors import HoldfastError, JobTypeError, PickleError
from holdfast.graph.graph import Graph
from holdfast.graph.nodes import Edge, Node
from holdfast.graph.operations import SINKS, SourceOperation
from holdfast.plan.explain import explain, to_json
from holdfast.plan.model import Defaults, Plan
from holdfast.plan.pictures import plan_image
from holdfast.plan.planner import make_plan
from holdfast.printable import counted, get_logger
from holdfast.tracebacks import show_user_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamExecutionEnvironment"]

_BUFFER_TIMEOUT = text("execution.buffer-timeout.interval", "200 ms")
_CHAINING = flag("pipeline.operator-chaining.enabled", True)
_JOB_NAME = text("pipeline.name", "Holdfast Streaming Job")

#: the settings that a job without checkpoints does not have
_OF_RECOVERY = ("execution.checkpointing.", "execution.state-recovery.", "restart-strategy")

_logger = get_logger(__name__)

#: creates an environment from the configuration of a program
_Factory: TypeAlias = "Callable[[Configuration | None], StreamExecutionEnvironment]"


class StreamExecutionEnvironment:
    """Builds a graph and runs it, on Spark unless set otherwise. Nothing runs until ``execute``."""

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
        """Return a new environment; jobs use the active Spark session, or create a local one.

        In a program started with ``holdfast run`` it has the settings of the command line;
        settings in the program take precedence.
        """
        show_user_frames()
        make = StreamExecutionEnvironment._context or StreamExecutionEnvironment
        return make(configuration)

    @staticmethod
    @contextmanager
    def context_environment(factory: _Factory) -> Iterator[None]:
        """Let ``get_execution_environment`` return what the factory creates, in this context.

        For programs that run other programs in their own process: they can set defaults, or
        read plans. The factory is called with the configuration of the program.
        """
        before = StreamExecutionEnvironment._context
        StreamExecutionEnvironment._context = factory
        try:
            yield
        finally:
            StreamExecutionEnvironment._context = before

    def __reduce__(self) -> NoReturn:
        message = (
            "an environment and its streams exist in the driver only; read what the function needs "
            "into a variable before"
        )
        raise PickleError(message)

    # Settings

    def get_config(self) -> ExecutionConfig:
        """Return the settings, which write through to the configuration."""
        return self._config

    def configure(self, configuration: Configuration) -> None:
        """Take over all settings of a configuration."""
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the default parallelism of operators."""
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the default parallelism; if not set, the number of cores of the session."""
        known = self._config.get_parallelism()
        return known if known > 0 else self.get_default_local_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the default number of key groups of operators."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the default max parallelism, or -1."""
        return self._config.get_max_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism if neither the environment nor the configuration has one."""
        self._local_parallelism = parallelism

    def get_default_local_parallelism(self) -> int:
        """Return the number of cores, unless it was set."""
        if self._local_parallelism is not None:
            return self._local_parallelism
        return default_parallelism(self._configuration)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set the mode before creating streams: in batch mode reductions emit only the last value.

        Every job runs as a stream; ``AUTOMATIC`` means ``STREAMING``.
        """
        RUNTIME_MODE.put(self._configuration, execution_mode.value)
        return self

    @property
    def _is_batch(self) -> bool:
        return is_batch(self._configuration)

    def set_buffer_timeout(self, timeout_millis: int | Duration) -> StreamExecutionEnvironment:
        """Set the interval of epochs in milliseconds."""
        _BUFFER_TIMEOUT.put(self._configuration, f"{to_millis(timeout_millis)} ms")
        return self

    def get_buffer_timeout(self) -> int:
        """Return the interval of epochs in milliseconds."""
        return to_millis(_BUFFER_TIMEOUT.get(self._configuration))

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Put every operator into its own chain."""
        _CHAINING.put(self._configuration, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators are chained."""
        return _CHAINING.get(self._configuration)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return True: chained operators share a subtask, whatever their key groups."""
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
        """Return the checkpoint settings, which write through to the configuration."""
        return self._checkpoint_config

    def get_checkpoint_interval(self) -> int:
        """Return the interval of checkpoints in milliseconds, or -1 without checkpoints."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return the setting, which has no effect; see ``CheckpointConfig``."""
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the setting, which has no effect; see ``CheckpointConfig``."""
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(
        self, directory: str | os.PathLike[str]
    ) -> StreamExecutionEnvironment:
        """Set the default directory of savepoints."""
        SAVEPOINT_DIRECTORY.put(self._configuration, path_of(directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the default directory of savepoints, or None."""
        return self._checkpoint_config.get_savepoint_directory()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Set the state backend; the older backends set the checkpoint storage, too."""
        put_backend(self._configuration, state_backend)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Return the state backend, or None if it is not set."""
        return backend_of(self._configuration)

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Accept the setting, without effect: changes of state are always written."""
        CHANGELOG.put(self._configuration, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the setting, or None."""
        return CHANGELOG.find(self._configuration)

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Set the restart strategy; the same as the keys ``restart-strategy.*``."""
        put_restart_strategy(self._configuration, restart_strategy_configuration)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return the restart strategy, or ``RestartStrategies.fall_back_restart()``."""
        return configured_restart_strategy(self._configuration)

    # Files and packages of the workers

    def add_python_file(self, file_path: str) -> None:
        """Send a module, a package, a directory or a zip file to the workers of a cluster.

        A directory with an ``__init__.py`` is a package. Modules in any other directory can be
        imported by their names.
        """
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
        """Set the interpreter of the workers; it needs the same packages as the driver's."""
        self._shipment.python_executable = python_exec

    # Sources

    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """Read the records of a list or another finite iterable, in order, in one subtask.

        Of a list of ``pyarrow.RecordBatch``, the stream has the rows, in batches.
        """
        if not isinstance(collection, Iterable):
            message = f"from_collection: expected a list of records; got {kind_of(collection)}"
            raise JobTypeError(message)
        records: Sequence[Any] = list(collection)
        if records and all(is_record_batch(each) for each in records):
            from holdfast.datastream.columns.rows import RowsOfBatches

            records = RowsOfBatches(records, type_info)
        return self._add_source(CollectionSource(records), "Source: Collection", type_info, 1)

    def add_source(
        self,
        source_func: SourceFunction,
        source_name: str = "Custom Source",
        type_info: Any = None,
    ) -> DataStream:
        """Read the records of a source function."""
        check_object("add_source", source_func, SourceFunction)
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
        """Read a source of ``holdfast.datastream.connectors``.

        Raises:
            JobDefinitionError: when the strategy has a watermark alignment, and the source cannot
                be paused or the strategy makes no watermarks.
        """
        if not isinstance(source, Source):
            message = f"from_source: expected a Source; got {type(source).__name__}"
            raise JobTypeError(message)
        check_alignment(source, watermark_strategy)
        name = f"Source: {source_name}"
        limit = source.parallelism_limit
        return self._add_source(source, name, type_info, limit, watermark_strategy)

    def from_dataframe(
        self, frame: DataFrame, source_name: str = "DataFrame", batch_schema: Any = None
    ) -> DataStream:
        """Read the rows of a streaming or a batch Spark DataFrame, as ``Row`` records.

        With ``batch_schema``, a ``pyarrow.Schema``, a dataclass or a named row type, it gives
        batches with these columns.
        """
        kind = None if batch_schema is None else BatchTypeInfo(batch_schema)
        source = DataFrameSource(frame, kind)
        return self._add_source(source, f"Source: {source_name}", None, 1)

    # Running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run what was built since the last execution, until it ends.

        Raises:
            JobDefinitionError: before anything runs, when the program cannot be run.
            JobExecutionError: when the job fails; ``UserFunctionError`` if a function of it does.
        """
        check_configuration(self._configuration)
        plan = self._take_plan(job_name)
        check_sinks(plan)
        launch = self._launcher().run_job
        return launch(plan, self._configuration, self._interval(plan), self._shipment)

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start what was built since the last execution."""
        check_configuration(self._configuration)
        plan = self._take_plan(job_name)
        check_sinks(plan)
        launch = self._launcher().start_job
        return launch(plan, self._configuration, self._interval(plan), self._shipment)

    def get_execution_plan(self) -> str:
        """Return the plan of the next execution, as Flink's JSON."""
        return to_json(self._plan(None))

    def explain(self, job_name: str | None = None) -> str:
        """Return the plan: engine, levels, chains, exchanges, parallelism, uids."""
        plan = self._plan(job_name)
        return explain(plan, engine_note(plan, self._configuration))

    def __repr__(self) -> str:
        count = counted(len(self._graph.pending()), "operator")
        return f"<StreamExecutionEnvironment with {count} to execute>"

    def _repr_html_(self) -> str:
        return escape(repr(self)) + self._picture(self._graph.pending())

    def _picture(self, nodes: Sequence[Node]) -> str:
        """Return the plan of some operators as HTML; or why there is none."""
        if not nodes:
            return ""
        try:
            return f"<br>{plan_image(self._plan_of(nodes, None))}"
        except HoldfastError as error:
            return f"<pre>{escape(str(error))}</pre>"

    def _preview(self, edges: tuple[Edge, ...], count: int, seconds: float) -> None:
        """Show the first records of a stream. It runs again only if a later node reads from it."""
        if not seconds > 0:
            message = f"preview: the seconds must be positive; got {seconds!r}"
            raise ValueError(message)
        stream = DataStream(self._branch(), edges)
        self._graph.mark_executed(self._graph.upstream(edges))
        records = stream.execute_and_collect(f"preview of {stream.get_name()}")
        show(take(records, count, seconds))

    def _branch(self) -> StreamExecutionEnvironment:
        """Return an environment for a job beside the one that is being built.

        It has the same streams and settings, but the job has no checkpoints and does not restart.
        """
        settings = self._configuration.to_dict()
        for key in [key for key in settings if key.startswith(_OF_RECOVERY)]:
            del settings[key]
        other = type(self)(Configuration(settings))
        other.set_restart_strategy(RestartStrategies.no_restart())
        other._graph = self._graph.branch()
        other._shipment = self._shipment
        other._local_parallelism = self._local_parallelism
        return other

    def _unexecuted_sinks(self) -> list[str]:
        """Return the names of the sinks that the next execution would write to."""
        return [node.name for node in self._graph.pending() if isinstance(node.operation, SINKS)]

    def close(self) -> None:
        """Do nothing: a job cleans up after itself, and the session belongs to the user."""

    def _execute_and_collect(self, node: int, job_name: str | None) -> CloseableIterator:
        check_configuration(self._configuration)
        plan = self._take_plan(job_name)
        interval = self._interval(plan)
        launch = self._launcher().collect_job
        return launch(plan, self._configuration, interval, self._shipment, node)

    def _launcher(self) -> Launcher:
        """Return what starts a job; called when everything that can be checked before is right."""
        return launcher(self._configuration)

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
            output_type=source.batch_type or type_info_of(type_info),
            parallelism=parallelism,
        )
        return DataStream(self, (Edge(node),))

    def _take_plan(self, job_name: str | None) -> Plan:
        plan = self._plan(job_name)
        self._graph.mark_executed()
        return plan

    def _plan(self, job_name: str | None) -> Plan:
        return self._plan_of(self._graph.pending(), job_name)

    def _plan_of(self, nodes: Sequence[Node], job_name: str | None) -> Plan:
        name = job_name or _JOB_NAME.get(self._configuration)
        limit = self.get_max_parallelism()
        defaults = Defaults(
            self.get_parallelism(), limit if limit > 0 else None, self.is_chaining_enabled()
        )
        return make_plan(nodes, defaults, name)

    def _interval(self, plan: Plan) -> int:
        own = [op.node.buffer_timeout for op in plan.operators.values()]
        given = [timeout for timeout in own if timeout is not None]
        return max(0, min([*given, self.get_buffer_timeout()]))
