import pytest

from halimede.core.errors import CancelledError, HalimedeError, InternalError
from halimede.core.requests import InferResponse
from halimede.engine.statistics import MAX_RESPONSE_INDEX, ModelStatistics

KINDS = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")


def counted(statistics: ModelStatistics, index: int) -> dict[str, tuple[int, int]]:
    counts = statistics.responses[index]
    durations = {name: getattr(counts, name) for name in KINDS}
    return {name: (each.count, each.ns) for name, each in durations.items() if each.count}


def test_responses_are_counted_by_their_index() -> None:
    statistics = ModelStatistics()
    statistics.count_response(0, InferResponse({}), 10, 1)
    statistics.count_response(1, None, 5, 3)
    statistics.count_response(0, InferResponse({}), 20, 2)
    assert counted(statistics, 0) == {
        "compute_infer": (2, 30),
        "compute_output": (2, 3),
        "success": (2, 33),
    }
    assert counted(statistics, 1) == {"compute_infer": (1, 5), "empty_response": (1, 5)}


@pytest.mark.parametrize(("error", "name"), [(InternalError("x"), "fail"), (CancelledError("x"), "cancel")])
def test_errors_and_cancellations_are_counted_apart(error: HalimedeError, name: str) -> None:
    statistics = ModelStatistics()
    statistics.count_response(0, InferResponse(error=error), 10, 1)
    assert counted(statistics, 0) == {"compute_infer": (1, 10), "compute_output": (1, 1), name: (1, 11)}


def test_responses_beyond_the_last_index_are_not_counted() -> None:
    statistics = ModelStatistics()
    for index in range(MAX_RESPONSE_INDEX + 3):
        statistics.count_response(index, None, 1, 0)
    assert len(statistics.responses) == MAX_RESPONSE_INDEX + 1
