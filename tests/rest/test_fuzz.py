"""The API, fuzzed from its own description: no request makes the server fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.rest.api import ENDPOINTS
from tests.rest.conftest import Serve
from tests.serving import JOB_ID, Client, LocalJob

schemathesis = pytest.importorskip("schemathesis", reason="needs the packages of holdfast[dev]")

EXAMPLES = 6
#: a text that fits its schema may still be no key of a state
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
refused = checks.positive_data_acceptance
#: a path that was put right, and parameters that nobody knows, are no reason to refuse
taken = checks.negative_data_rejection


@pytest.fixture(scope="module")
def ask(serve: Serve, job: LocalJob) -> Client:
    return serve(job, rate=100_000)


def _cases(operation: Any) -> Any:
    """Requests that fit the description, and requests that do not."""
    modes = schemathesis.GenerationMode
    return st.one_of(
        operation.as_strategy(generation_mode=modes.POSITIVE),
        operation.as_strategy(generation_mode=modes.NEGATIVE),
    )


def test_no_request_makes_the_server_fail(ask: Client, job: LocalJob) -> None:
    known = {
        "job_id": JOB_ID,
        "vertex_id": job.history.graph.vertices[-1].id,
        "checkpoint_id": "1",
        "other_id": "2",
    }
    schema = schemathesis.openapi.from_url(f"{ask.server.url}/openapi.json")
    checked = []
    for found in schema.get_all_operations():
        operation = found.ok()
        checked.append(operation.label)

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=_cases(operation), there=st.booleans())
        def fuzz(case: Any, there: bool) -> None:
            """Half of the time with what is there: else hardly one would get past its path."""
            if there and case.path_parameters:
                case.path_parameters |= {
                    name: known[name] for name in case.path_parameters if name in known
                }
            case.call_and_validate(excluded_checks=[refused, taken])

        fuzz()
    assert len(checked) == len(ENDPOINTS)
