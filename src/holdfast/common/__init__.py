"""What jobs, streams and states have in common; the names and module paths are PyFlink's.

Types and records
    - `Types`: makes type information.
    - `TypeInformation`: what a stream's records or a state's values are.
    - `type_info_of`: type information from Python's own types.
    - `TypeSerializer`: a serializer written by the user.
    - `Row`: a record with fields by position and by name.
    - `RowKind`: whether a row says that something came, changed, or went.

Time
    - `Duration`: a length of time with nanosecond resolution.
    - `Time`: a length of time in milliseconds, as windows take it.
    - `Instant`: a point on the time line.
    - `WatermarkStrategy`: who gives records their timestamps, and how watermarks follow.

Configuration
    - `Configuration`: values by key.
    - `ConfigOptions`: makes a `ConfigOption`.
    - `ConfigOption`: a key with the type of its value and a default.
    - `ExecutionConfig`: how a job is run.
    - `RestartStrategies`: makes a restart strategy.
    - `RestartStrategyConfiguration`: what to do when a job fails.

Formats
    - `SerializationSchema`: from records to bytes.
    - `DeserializationSchema`: from bytes to records.
    - `SimpleStringSchema`: strings as the bytes of a character set, both ways.
    - `ByteArraySchema`: bytes as they are, both ways.
    - `Encoder`: from records to what a file sink appends.

Jobs
    - `JobClient`: the handle on a running job.
    - `JobID`: the identifier of a job.
    - `JobStatus`: what a job is doing.
    - `JobExecutionResult`: what `execute` returns when a job is over.
    - `CompletableFuture`: the outcome of something still going on.
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
