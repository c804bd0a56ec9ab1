"""octavo bench on a scripted engine: which steps count, and what is no result."""

from __future__ import annotations

import pytest

from octavo.cli.bench import Workload, measure
from octavo.errors import RequestFailedError
from tests.support.scripted_engine import scripted_engine

BATCH = Workload("batch 8", 8, 16, 4)


def test_a_batch_larger_than_the_engine_takes_is_measured_in_parts() -> None:
    """The steps that count are the fullest that there were."""
    engine = scripted_engine(scheduler={"max_num_seqs": 3})

    result = measure(engine, BATCH, num_runs=1)

    assert (result.num_requests, len(result.runs_s)) == (8, 1)
    assert result.new_tokens_per_s > 0


def test_a_failed_request_is_no_result() -> None:
    """A rate of tokens that were never made would be a lie."""
    engine = scripted_engine(on_executor=lambda executor: executor.fail_run(RuntimeError("broken")))

    with pytest.raises(RequestFailedError, match="broken"):
        measure(engine, BATCH, num_runs=1)
