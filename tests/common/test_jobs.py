import pickle
import threading
from concurrent.futures import CancelledError

import pytest

from holdfast.common import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus


def test_a_future_with_a_result():
    future = CompletableFuture()
    seen = []
    future.add_done_callback(seen.append)
    assert not future.done()
    assert future.exception() is None
    assert future.set_result(5) is True
    assert future.set_result(6) is False
    assert future.set_exception(ValueError("x")) is False
    assert future.cancel() is False
    assert (future.result(), future.done(), future.exception(), future.cancelled()) == (
        5,
        True,
        None,
        False,
    )
    assert seen == [future]
    assert repr(future) == "<CompletableFuture completed>"


def test_a_future_with_an_exception():
    future = CompletableFuture.failed(ValueError("broken"))
    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="broken"):
        future.result()
    assert repr(future) == "<CompletableFuture failed>"


def test_a_cancelled_future():
    future = CompletableFuture()
    assert repr(future) == "<CompletableFuture pending>"
    assert future.cancel() is True
    assert future.cancelled()
    assert future.done()
    assert isinstance(future.exception(), CancelledError)
    assert future.set_result(1) is False
    with pytest.raises(CancelledError):
        future.result()
    assert repr(future) == "<CompletableFuture cancelled>"


def test_result_waits_for_another_thread():
    future = CompletableFuture()
    thread = threading.Thread(target=future.set_result, args=(5,))
    thread.start()
    assert future.result(timeout=60) == 5
    thread.join()


def test_result_gives_up_after_the_timeout():
    with pytest.raises(TimeoutError):
        CompletableFuture().result(timeout=0)


def test_a_callback_after_the_end_is_called_at_once():
    seen = []
    CompletableFuture.completed(5).add_done_callback(lambda f: seen.append(f.result()))
    assert seen == [5]


def test_job_ids():
    assert JobID() != JobID.generate()
    job_id = JobID("0123456789abcdef0123456789abcdef")
    assert str(job_id) == job_id.to_hex_string() == "0123456789abcdef0123456789abcdef"
    assert JobID.from_hex_string(str(job_id).upper()) == job_id
    assert pickle.loads(pickle.dumps(job_id)) == job_id
    assert eval(repr(job_id)) == job_id
    with pytest.raises(ValueError, match="a job id has 32 lower-case hexadecimal digits; got 'x'"):
        JobID("x")


@pytest.mark.parametrize("status", JobStatus)
def test_terminal_states(status):
    over = status in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)
    assert status.is_globally_terminal_state() is over
    assert status.is_terminal_state() is (over or status is JobStatus.SUSPENDED)


def test_job_execution_result():
    job_id = JobID("0" * 32)
    result = JobExecutionResult(job_id, 1234, {"lines": 5})
    assert result.get_job_id() is job_id
    assert result.is_job_execution_result()
    assert result.get_net_runtime() == 1234
    assert result.get_accumulator_result("lines") == 5
    assert result.get_accumulator_result("none") is None
    assert result.get_all_accumulator_results() == {"lines": 5}
    assert str(result) == (
        f"Program execution finished\nJob with JobID {'0' * 32} has finished.\n"
        "Job Runtime: 1234 ms\nAccumulator Results:\n- lines: 5"
    )
    assert pickle.loads(pickle.dumps(result)).get_net_runtime() == 1234


def test_job_client_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        JobClient()
    assert JobClient.__abstractmethods__ == {
        "cancel",
        "get_accumulators",
        "get_attempts",
        "get_checkpoints",
        "get_epochs",
        "get_job_execution_result",
        "get_job_id",
        "get_job_status",
        "get_metrics",
        "query_state",
        "get_watermarks",
        "stop_with_savepoint",
        "trigger_savepoint",
    }
