"""Types, time, configuration and job handles; the names and module paths are PyFlink's.

Types and records
    - `Types`: creates type information.
    - `TypeInformation`: the type of a stream's records or a state's values.
    - `type_info_of`: type information from Python's own types.
    - `TypeSerializer`: a serializer written by the user.
    - `Row`: a record with fields by position and by name.
    - `RowKind`: whether a row is an insertion, an update, or a deletion.

Time
    - `Duration`: a length of time with nanosecond resolution.
    - `Time`: a length of time in milliseconds, as windows take it.
    - `Instant`: a point on the time line.
    - `WatermarkStrategy`: how timestamps are assigned and watermarks generated.

Configuration
    - `Configuration`: values by key.
    - `ConfigOptions`: creates a `ConfigOption`.
    - `ConfigOption`: a key with the type of its value and a default.
    - `ExecutionConfig`: the settings of a job's execution.
    - `RestartStrategies`: creates a restart strategy.
    - `RestartStrategyConfiguration`: what to do when a job fails.

Formats
    - `SerializationSchema`: from records to bytes.
    - `DeserializationSchema`: from bytes to records.
    - `SimpleStringSchema`: strings as the bytes of a character set, both ways.
    - `ByteArraySchema`: unchanged bytes, both ways.
    - `Encoder`: from records to the bytes that a file sink appends.

Jobs
    - `JobClient`: the handle of a running job.
    - `JobID`: the identifier of a job.
    - `JobStatus`: the status of a job.
    - `JobExecutionResult`: the result of `execute` when a job has ended.
    - `CompletableFuture`: the result of an operation that may still be running.
"""

from holdfast.common.completable_future import CompletableFuture
from holdfast.common.config_options import ConfigOption, ConfigOptions
from holdfast.common.configuration import Configuration
from holdfast.common.execution_config import ExecutionConfig
from holdfast.common.job_client import JobClient
from holdfast.common.job_execution_result import JobExecutionResult
from holdfast.common.job_id import JobID
from holdfast.common.job_status import JobStatus
from holdfast.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from holdfast.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from holdfast.common.serializer import TypeSerializer
from holdfast.common.time import Duration, Instant, Time
from holdfast.common.typeinfo import TypeInformation, Types, type_info_of
from holdfast.common.types import Row, RowKind
from holdfast.common.watermark_strategy import WatermarkStrategy

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
    "type_info_of",
]
