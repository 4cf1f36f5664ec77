"""The base of both engines on Spark: the session, the job's directories, its broadcast code."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from pyspark import Broadcast
from pyspark.sql import SparkSession

from holdfast.common import Configuration, ExecutionConfig
from holdfast.common.options.engine import DIRECTORY, HEARTBEAT
from holdfast.common.options.ports import PORT_RANGE
from holdfast.common.options.recovery import NON_RESTORED_STATE
from holdfast.datastream.checkpoint_config import CheckpointConfig
from holdfast.datastream.checkpointing_mode import CheckpointingMode
from holdfast.datastream.engines import writes_rows
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.state_backend import state_settings
from holdfast.driver.directory import JobDirectory
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job.supervisor import Steps
from holdfast.filesystem import configure, hadoop_options, mount, unmount
from holdfast.filesystem.local import LOCAL
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.runtime.network.desk import Desk
from holdfast.runtime.network.driver_files import driver_root
from holdfast.runtime.network.peers import listen
from holdfast.runtime.network.sockets import ip_of, own_ip
from holdfast.runtime.worker.job_code import make_job_code, new_key, pack
from holdfast.spark.certificate import encrypts_network, make_certificate
from holdfast.spark.dataframe_writer import SparkWriters
from holdfast.spark.hadoop import hadoop_settings
from holdfast.spark.jvm import DriverJvm
from holdfast.spark.row_transactions import delete_staged
from holdfast.spark.session import is_local
from holdfast.spark.shipping import deliver_shipment
from holdfast.spark.worker import ShippedJob

_LOOPBACK: Final = "127.0.0.1"
_HOST: Final = "spark.driver.host"
_BIND: Final = "spark.driver.bindAddress"

_logger = get_logger(__name__)

#: the names of this process's running jobs; the workers of a session run no other jobs
_running: set[str] = set()


class SparkEngine(Engine):
    """Base of the engines whose subtasks run in Spark's workers."""

    #: where subtasks stage the rows for DataFrame sinks
    _rows_directory = ""

    def __init__(
        self,
        session: SparkSession,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
    ) -> None:
        """Create the job's directory, and send the workers everything except the job itself.

        ``interval_ms`` is the interval of epochs.
        """
        self._session = session
        self._configuration = configuration
        self._interval_ms = interval_ms
        self._state = state_settings(configuration)
        self._key = new_key()
        self._ports = PORT_RANGE.get(configuration)
        self._jvm = DriverJvm(session.sparkContext)
        self._name = self._job_name = ""
        self._broadcast: Broadcast[bytes] | None = None
        context = session.sparkContext
        self._local = is_local(session)
        #: the certificate for connections of the job's processes; empty without encryption
        self._certificate = make_certificate(context) if encrypts_network(context) else b""
        self._file_systems = hadoop_options(hadoop_settings(context) | configuration.to_dict())
        configure(self._file_systems)
        with ExitStack() as made:
            self._directory = JobDirectory(DIRECTORY.find(configuration), self._local)
            made.callback(self._directory.remove)
            self._paths = deliver_shipment(context, shipment, self.scratch)
            #: the address on which the driver listens, and the host name that executors use
            self._bind, self._host = _places(session)
            listens = partial(
                listen,
                host=self._bind,
                key=self._key.hex(),
                certificate=self._certificate,
                ports=self._ports,
            )
            self._listen = listens
            self._desk = Desk(listens, self.scratch, ip_of(self._host, _HOST))
            made.callback(self._desk.close)
            made.pop_all()
        mount(driver_root(self._desk.address), LOCAL)

    @property
    def scratch(self) -> Path:
        """Return the directory of the driver."""
        return self._directory.path

    @property
    def directory(self) -> str:
        """Return the address of the directory for data of the running job."""
        return self._directory.address

    def _seen_by_workers(self, address: str) -> str:
        """Return a directory's address for workers; the driver serves its own directory to them."""
        own = not self._local and Path(address).is_relative_to(self.scratch)
        return driver_root(self._desk.address) + address if own else address

    def _check(self) -> None:
        """Raise an error if waiting for the current epoch makes no sense any more."""
        self._jvm.check()
        self._check_lock()

    def _ship(self, job: PlannedJob, plan: Plan) -> None:
        """Check that everything can be sent to the workers, and pass it to Spark.

        ``plan`` is the plan for the workers.
        """
        self._check_lock = job.check
        execution = ExecutionConfig(self._configuration)
        mode = CheckpointConfig(self._configuration).get_checkpointing_mode()
        code = make_job_code(
            job.name,
            plan,
            self._directory.shared,
            execution.get_global_job_parameters(),
            self._local,
            self._seen_by_workers(job.state_directory),
            job.faults,
            self._file_systems,
            self._state,
            self._seen_by_workers(job.staging_directory),
            key=self._key,
            watermark_interval_ms=execution.get_auto_watermark_interval(),
            aligns=mode is CheckpointingMode.EXACTLY_ONCE,
            functions_stay=self.abilities.keeps_state,
            certificate=self._certificate,
            ports=self._ports,
            desk=self._desk.address,
            keeps_rows=CheckpointConfig(self._configuration).is_checkpointing_enabled(),
            heartbeat=HEARTBEAT.get(self._configuration).total_seconds(),
        )
        if writes_rows(plan) and not code.keeps_rows:
            # NB: those of a killed driver, which will never be written
            delete_staged(code.rows_directory)
        self._rows_directory = code.rows_directory
        before, name = self._broadcast, self._job_name
        self._broadcast = self._session.sparkContext.broadcast(pack(code, self._paths))
        self._name, self._job_name = job.plan.name, job.name
        _running.add(job.name)
        if before is not None:
            _running.discard(name)
            self._destroy(before)

    def _writers_of(self, plan: Plan) -> SparkWriters:
        """Return the DataFrame writers of a plan."""
        enabled = CheckpointConfig(self._configuration).is_checkpointing_enabled()
        may_drop = NON_RESTORED_STATE.get(self._configuration)
        return SparkWriters(plan, self._session, enabled, may_drop)

    @property
    def _shipped(self) -> ShippedJob:
        """Return the reference to the job for tasks."""
        assert self._broadcast is not None
        return ShippedJob(self._job_name, self._broadcast, frozenset(_running))

    def check(self) -> None:
        """Raise an error if Spark's JVM has died."""
        self._jvm.check()

    def explain(
        self, error: BaseException, what: str = "Spark could not run an epoch"
    ) -> BaseException:
        """Return the error to report; if the JVM has died, that is the cause of any other error."""
        return self._jvm.explain(error, what)

    def close(self) -> None:
        """Remove the job's files on this machine and its data in Spark."""
        steps = Steps(self._name)
        _running.discard(self._job_name)
        unmount(driver_root(self._desk.address))
        steps.take("close its desk", self._desk.close)
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


def _places(session: SparkSession) -> tuple[str, str]:
    """Return the address on which the driver listens, and the host name that executors use.

    They differ if the driver is behind a port mapping, as in a container.
    """
    if is_local(session):
        return _LOOPBACK, _LOOPBACK
    settings = session.sparkContext.getConf()
    host = settings.get(_HOST) or own_ip()
    bind = settings.get(_BIND)
    return ip_of(bind or host, _BIND if bind else _HOST), host
