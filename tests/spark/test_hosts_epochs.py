"""Jobs in epochs, and jobs that Spark writes for, on three hosts that share no directory."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from holdfast.checkpoint.savepoints import read_savepoint
from tests.cluster import Store
from tests.hosts import hosts, why_not
from tests.spark.test_hosts import (
    COUNT,
    DISTURBED,
    EXECUTOR,
    KEYS,
    NUMBERS,
    Jobs,
    check_exact,
    let_go,
    result_of,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.engine("epochs"),
    pytest.mark.timeout(1800),
]

#: epochs of few records, so that there are several
SMALL = "holdfast.epoch.max-records=8000"
EVERY_SECOND = "execution.checkpointing.interval=1s"

#: Runs jobs, one after the other. Each prints which checkpoint is complete; in the end the largest
#: count of each key, and who counted.
JOB = """
import json, os, socket, time

from holdfast.common import Configuration, Types
from holdfast.datastream import KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import CheckpointedFunction, CheckpointListener
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor

KEYS, NUMBERS, WAITS = {keys}, {numbers}, {waits}


class Loop(SourceFunction, CheckpointedFunction, CheckpointListener):
    # if WAITS, it waits for a checkpoint before each quarter of its numbers, and before the last
    # one for a file /tmp/go
    def __init__(self):
        self.next, self.complete, self.cancelled = 0, 0, False

    def may_go_on(self, before):
        if not WAITS or self.next % (NUMBERS // 4):
            return True
        is_last = self.next == NUMBERS // 4 * 3
        return self.complete > before and (not is_last or os.path.exists("/tmp/go"))

    def run(self, ctx):
        while self.next < NUMBERS and not self.cancelled:
            before = self.complete
            while not self.may_go_on(before):
                time.sleep(0.01)
                if self.cancelled:
                    return
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self):
        self.cancelled = True

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("next", int))
        for number in self.state.get():
            self.next = number

    def snapshot_state(self, context):
        self.state.update([self.next])

    def notify_checkpoint_complete(self, checkpoint_id):
        self.complete = checkpoint_id


{count}


def run(from_loop, settings):
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    source = NumberSequenceSource(0, NUMBERS - 1)
    numbers = env.add_source(Loop()) if from_loop else env.from_source(source)
    found, hosts = {{}}, set()
    results = numbers.key_by(lambda n: n % KEYS).process(Count()).execute_and_collect()
    for at, (key, count, host, complete) in enumerate(results):
        found[key] = max(count, found.get(key, 0))
        hosts.add(host)
        if at % 1000 == 0:
            print("checkpoint", complete, flush=True)
    print("END", json.dumps([sorted(found.items()), sorted(hosts)]), flush=True)


for from_loop, settings in {jobs}:
    run(from_loop, settings)
"""

#: counts into a table, takes a savepoint on the way, and prints where it is
SINK_JOB = """
from holdfast.common import Types
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
numbers = env.from_source(NumberSequenceSource(0, {numbers} - 1), source_name="numbers")
columns = Types.ROW_NAMED(["key", "count"], [Types.LONG(), Types.LONG()])
counts = numbers.map(lambda n: (n % {keys}, 1), columns).key_by(lambda row: row.key).sum("count")
counts.sink_to(DataFrameSink("parquet", "/tmp/out"))
client = env.execute_async("sink")
saved = client.trigger_savepoint("/tmp/saved").result()
client.get_job_execution_result().result()
print("SAVED", saved, flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    missing = why_not()
    if missing:
        pytest.skip(f"no hosts: {missing}")
    with hosts(3) as made:
        yield Jobs(made, tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def store(cluster: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(cluster.hosts, 1, tmp_path_factory.mktemp("store") / "log")


def write_jobs(cluster: Jobs, *jobs: tuple[bool, dict[str, str]], waits: bool = False) -> None:
    """Write the program: of each job whether it has a source function, and its settings.

    ``waits``: source functions wait for checkpoints.
    """
    values = {"keys": KEYS, "numbers": NUMBERS, "waits": waits, "count": COUNT, "jobs": jobs}
    (cluster.hosts.temporary(1) / "job.py").write_text(JOB.format(**values))
    for k in (2, 3):
        (cluster.hosts.temporary(k) / "go").unlink(missing_ok=True)


def kill_in_the_middle(cluster: Jobs, driver: subprocess.Popen[str]) -> str:
    """Kill an executor after a checkpoint, before the job may end; returns what is printed."""
    assert driver.stdout is not None
    before = ""
    for line in driver.stdout:
        before += line
        if re.match(r"checkpoint [1-9]", line):
            break
    cluster.hosts.kill(3, EXECUTOR)
    let_go(cluster.hosts)
    return before + result_of(driver)


def test_in_epochs_an_executor_is_killed_and_the_job_goes_on(cluster: Jobs, store: Store) -> None:
    """Spark runs the tasks again, or the job goes back to its checkpoint: every count is exact."""
    write_jobs(cluster, (True, {}), waits=True)
    checkpoints = "execution.checkpointing.dir=s3a://kept/epochs"
    driver = cluster.start(*DISTURBED, *store.settings, checkpoints)
    text = kill_in_the_middle(cluster, driver)
    check_exact(text, spread=False)


def test_in_epochs_no_state_moves_while_nothing_fails(cluster: Jobs, store: Store) -> None:
    """Spark gives a task to either executor; counted by the store, which all state goes through."""
    write_jobs(cluster, (False, {}))
    checkpoints = ("execution.checkpointing.dir=s3a://kept/calm", EVERY_SECOND)
    driver = cluster.start(*store.settings, *checkpoints, "holdfast.epoch.max-records=1500")
    check_exact(result_of(driver))
    # <host> ... "PUT /kept/calm/.../state/<epoch>-<level>-<subtask>-<stamp>.state
    written = store.asked(r"PUT /kept/calm/\S+/state/\d")
    assert len(written) > 40, written
    name = re.compile(r"^(\S+) .*/state/\d+-(\d+-\d+)-")
    writers = {found.group(2, 1) for found in map(name.match, written) if found}
    assert len(writers) == 4, sorted(writers)
    assert not store.asked(r"GET /kept/calm/\S+/state/\d")


def test_in_epochs_without_checkpoints_a_job_needs_the_network_or_a_directory_for_all(
    cluster: Jobs, store: Store
) -> None:
    """Three jobs of one driver, which takes most of the time.

    One needs nothing but the network. The directory of the second one is on the store: state goes
    there after each epoch. That of the third one is one that others do not see, and is refused.
    """
    directories = [{"holdfast.directory": place} for place in ("s3a://kept/run", "/tmp/run")]
    write_jobs(cluster, (True, {}), *((False, directory) for directory in directories))
    driver = cluster.start(*store.settings, SMALL)
    text = result_of(driver)
    assert driver.returncode == 1, text
    _, *ends = re.split(r"^(?=END )", text, flags=re.MULTILINE)
    assert len(ends) == 2, text
    for end in ends:
        check_exact(end, spread=False)
    message = (
        r"there is no directory '/tmp/run/holdfast-job-\w+' on host 'h[23]'; it is the "
        r"directory of the running job: set 'holdfast.directory' to a place that the driver and "
    )
    assert re.search(message, ends[1]), text


@pytest.mark.engine("resident")
def test_spark_writes_rows_and_a_savepoint_is_taken_without_a_place_in_common(
    cluster: Jobs,
) -> None:
    """One of the two slots is for Spark, which writes."""
    outs = [cluster.hosts.temporary(k) / "out" for k in (1, 2, 3)]
    code = SINK_JOB.format(keys=KEYS, numbers=NUMBERS)
    (cluster.hosts.temporary(1) / "job.py").write_text(code)
    # each executor leaves what it wrote on its own host
    committer = "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version=2"
    text = result_of(cluster.start(committer))
    found = re.search(r"^SAVED (/tmp/saved/.*)$", text, re.MULTILINE)
    assert found is not None, text
    saved = read_savepoint(cluster.hosts.temporary(1) / Path(found[1]).relative_to("/tmp"))
    assert saved.metadata.files()
    files = [file for out in outs for file in out.glob("*.parquet")]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    expected = [(key, count + 1) for key in range(KEYS) for count in range(NUMBERS // KEYS)]
    assert sorted((row["key"], row["count"]) for row in rows) == expected
    for out in outs:
        shutil.rmtree(out, ignore_errors=True)
