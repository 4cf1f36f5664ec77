"""Whatever is done to the files of a savepoint or checkpoint, nothing worse than an error comes."""

from __future__ import annotations

from tests.fuzzing.campaign import report, try_out

MUTANTS = 400


def test_mutants_are_refused_or_do_no_harm() -> None:
    results = list(try_out(range(MUTANTS), processes=1))
    told: list[str] = []
    assert report(results, told.append), "\n".join(told)
    assert len(results) == MUTANTS
    # NB: a fuzzer whose mutants nobody notices would find nothing
    refused = [result for result in results if result.outcome == "refused"]
    assert len(refused) > MUTANTS / 3
    assert {result.mutation.file for result in results} >= {"metadata", "state", "table"}
