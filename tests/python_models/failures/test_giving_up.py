"""Clients that give up, on models of every scheduler: what runs learns of it, what waits never runs."""

import pytest

from tests.python_models.cancelling import (
    BY_REQUEST,
    ROWS,
    WAYS,
    Cancelling,
    cancel_by_deadline,
    cancel_by_grpc,
    cancel_by_http,
    cancel_running,
    cancelled,
    metric,
    pending,
    said,
)
from tests.python_models.support import Models
from tests.support.waiting import wait_until

SCHEDULERS = {
    "default": "",
    "dynamic": "dynamic_batching { }",
    "priorities": "dynamic_batching { priority_levels: 2 default_priority_level: 2 }",
    "preserve_ordering": "dynamic_batching { preserve_ordering: true }",
    "direct": "sequence_batching { direct { } }",
    "oldest": "sequence_batching { oldest { max_candidate_sequences: 1 } }",
    "iterative": "sequence_batching { iterative_sequence: true }",
    "ensemble": "",
}
ENSEMBLE = (
    'platform: "ensemble" max_batch_size: 1 '
    'input { name: "IN" data_type: TYPE_FP32 dims: [1] } output { name: "OUT" data_type: TYPE_FP32 dims: [1] } '
    'ensemble_scheduling { step { model_name: "%s" model_version: -1 '
    'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "half" } } '
    'step { model_name: "%s" model_version: -1 '
    'input_map { key: "IN" value: "half" } output_map { key: "OUT" value: "OUT" } } }'
)


def load(models: Models, scheduler: str) -> tuple[str, str]:
    """A model and the one that runs for it, which is itself or the first of its steps."""
    step = models.load(BY_REQUEST, ROWS + SCHEDULERS[scheduler])
    if scheduler != "ensemble":
        return step, step
    return models.load_config(ENSEMBLE % (step, models.load(BY_REQUEST, ROWS))), step


@pytest.mark.parametrize("cancelling", WAYS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_running_model_learns_that_its_client_gave_up(
    models: Models, scheduler: str, cancelling: Cancelling
) -> None:
    name, step = load(models, scheduler)
    sequence = int(scheduler in ("direct", "oldest"))
    request_id, cancel = cancel_running(cancelling, models, name, step, sequence)
    cancel()
    wait_until(lambda: said(models, step, f"cancelled {request_id}"), "the model to learn of it")
    assert not said(models, step, f"not cancelled {request_id}")
    wait_until(lambda: counts(models, step) == (1, 0), "the end of the execution")
    if step != name:
        wait_until(lambda: counts(models, name) == (0, 1), "the ensemble to end")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_request_that_waits_is_never_run(models: Models, scheduler: str) -> None:
    name, step = load(models, scheduler)
    sequence = int(scheduler in ("direct", "oldest"))
    release = cancel_by_grpc(models, step, "first", sequence)
    wait_until(lambda: said(models, step, "began first"), "the execution")
    for number, cancelling in enumerate(WAYS, 2):
        cancel = cancelling(models, name, f"r{number}", number * sequence)
        if cancelling is not cancel_by_deadline:
            wait_until(lambda: pending(models, step) == 1, "the request to wait")
        cancel()
        wait_until(lambda count=number - 1: counts(models, name)[1] == count, "the request to be counted")  # type: ignore[misc]
        assert pending(models, step) == 0
    release()
    wait_until(lambda: counts(models, step) == (1, 3), "the end of the first")
    end = cancel_by_grpc(models, step, "next", 9 * sequence)
    wait_until(lambda: said(models, step, "began next"), "the next one to be served")
    end()
    assert not any(said(models, step, f"began r{number}") for number in (2, 3, 4))
    assert cancelled(models, name) == 3


def counts(models: Models, name: str) -> tuple[int, int]:
    """How many requests to a model have succeeded, and how many have failed."""
    statistics = models.statistics(name)["inference_stats"]
    return statistics["success"]["count"], statistics["fail"]["count"]


def test_thousands_of_requests_that_were_given_up_leave_nothing(models: Models) -> None:
    name = models.load(BY_REQUEST, ROWS)
    release = cancel_by_grpc(models, name, "first")
    wait_until(lambda: said(models, name, "began first"), "the execution")
    memory: list[int] = []
    for _ in range(15):
        for leave in [cancel_by_http(models, name, "r") for _ in range(200)]:
            leave()
        wait_until(
            lambda: metric(models, 'halimede_requests_in_flight{protocol="http"}') == 0, "the requests to end"
        )
        wait_until(lambda: pending(models, name) == 0, "the queue, as front ends may tell of some later")
        memory.append(metric(models, "\nhalimede_resident_memory_bytes"))
    assert memory[-1] - memory[4] < 8 << 20
    release()
