"""What both engines on Spark have: the session, the job's directory, its code as a broadcast."""

from __future__ import annotations

from pathlib import Path

from pyspark import Broadcast
from pyspark.sql import SparkSession

from holdfast.common import Configuration, ExecutionConfig
from holdfast.common.port_options import port_range
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.supervisor import Steps
from holdfast.filesystem import configure, hadoop_options
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.job import make_job_code, new_key, pack
from holdfast.spark.directory import DIRECTORY, make_job_directory
from holdfast.spark.hadoop import hadoop_settings
from holdfast.spark.jvm import DriverJvm
from holdfast.spark.session import is_local
from holdfast.spark.shipping import deliver_shipment

__all__ = ["SparkEngine"]

_logger = get_logger(__name__)


class SparkEngine(Engine):
    """An engine that Spark's workers run for."""

    def __init__(
        self,
        session: SparkSession,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
    ) -> None:
        """Make the job's directory, and give Spark what the workers need besides the job.

        ``interval_ms`` is that of epochs.
        """
        self._session = session
        self._configuration = configuration
        self._interval_ms = interval_ms
        self._state = state_settings(configuration)
        self._key = new_key()
        self._ports = port_range(configuration)
        self._jvm = DriverJvm(session.sparkContext)
        self._name = ""
        self._broadcast: Broadcast[bytes] | None = None
        #: with what the job's processes encrypt their connections, if they do
        self._certificate = b""
        self._directory = make_job_directory(configuration.to_dict().get(DIRECTORY))
        try:
            context = session.sparkContext
            self._paths = deliver_shipment(context, shipment, self.scratch)
            self._file_systems = hadoop_options(hadoop_settings(context) | configuration.to_dict())
            configure(self._file_systems)
        except BaseException:
            self._directory.remove()
            raise

    @property
    def scratch(self) -> Path:
        """The job's own directory, which the workers see."""
        return self._directory.path

    def _ship(self, job: PlannedJob, plan: Plan) -> Broadcast[bytes]:
        """Check that everything can be sent to the workers, and give it to Spark.

        ``plan``: as the workers get it.
        """
        execution = ExecutionConfig(self._configuration)
        mode = CheckpointConfig(self._configuration).get_checkpointing_mode()
        code = make_job_code(
            job.name,
            plan,
            str(self.scratch),
            execution.get_global_job_parameters(),
            is_local(self._session),
            job.state_directory,
            job.faults,
            self._file_systems,
            self._state,
            job.staging_directory,
            key=self._key,
            watermark_interval_ms=execution.get_auto_watermark_interval(),
            aligns=mode is CheckpointingMode.EXACTLY_ONCE,
            functions_stay=self.abilities.keeps_state,
            certificate=self._certificate,
            ports=self._ports,
        )
        before = self._broadcast
        self._broadcast = self._session.sparkContext.broadcast(pack(code, self._paths))
        self._name = job.plan.name
        if before is not None:
            self._destroy(before)
        return self._broadcast

    def check(self) -> None:
        """Raise an error if Spark is gone."""
        self._jvm.check()

    def explain(
        self, error: BaseException, what: str = "Spark could not run an epoch"
    ) -> BaseException:
        """A dead JVM is the cause of whatever else went wrong."""
        return self._jvm.explain(error, what)

    def close(self) -> None:
        """Remove what the job had on this machine and in Spark."""
        steps = Steps(self._name)
        steps.take("remove its directory", self._directory.remove)
        steps.take("remove local databases", lambda: self._state.forget(self._key))
        if self._broadcast is not None:
            self._destroy(self._broadcast)

    def _destroy(self, broadcast: Broadcast[bytes]) -> None:
        try:
            self._jvm.check()
            broadcast.destroy()
        except Exception as error:
            _logger.debug("the job's broadcast could not be destroyed: %s", error)
