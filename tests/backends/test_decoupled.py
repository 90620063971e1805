"""The decoupled test backends, `repeat` and `square`, and those that are not decoupled."""

from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from halimede.backends.testing import repeat
from halimede.core.errors import CancelledError, InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from tests.backends.helpers import Loaded, load, request
from tests.support import onnx_models

REPEAT = """
    backend: "repeat" model_transaction_policy { decoupled: true }
    input { name: "IN" data_type: TYPE_INT32 dims: [-1] }
    input { name: "DELAY" data_type: TYPE_UINT32 dims: [-1] }
    input { name: "WAIT" data_type: TYPE_UINT32 dims: [1] }
    output { name: "OUT" data_type: TYPE_INT32 dims: [1] }
    output { name: "IDX" data_type: TYPE_UINT32 dims: [1] }
"""
SQUARE = """
    backend: "square" model_transaction_policy { decoupled: true }
    input { name: "IN" data_type: TYPE_INT32 dims: [1] }
    output { name: "OUT" data_type: TYPE_INT32 dims: [1] }
"""
Sent = tuple[InferRequest, InferResponse | None, bool]


def execute(
    model: Loaded, *requests: InferRequest
) -> dict[InferRequest, list[tuple[InferResponse | None, bool]]]:
    """What each request was sent, to its final response."""
    sent: SimpleQueue[Sent] = SimpleQueue()
    batch = model.batch(*requests)
    batch.send = lambda *response: sent.put(response)
    model.instance.execute(batch)
    assert batch.responses == ()
    received: dict[InferRequest, list[tuple[InferResponse | None, bool]]] = {each: [] for each in requests}
    open_requests = set(requests)
    while open_requests:
        each, response, final = sent.get(timeout=60)
        assert each in open_requests
        received[each].append((response, final))
        if final:
            open_requests.remove(each)
    return received


def repeated(
    values: list[int], delays: list[int], wait: int = 0, outputs: tuple[str, ...] = ()
) -> InferRequest:
    return request(
        {
            "IN": np.array(values, np.int32),
            "DELAY": np.array(delays, np.uint32),
            "WAIT": np.array([wait], np.uint32),
        },
        outputs,
    )


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    naps: list[float] = []
    monkeypatch.setattr(repeat, "sleep", naps.append)
    return naps


def test_repeat_sends_every_element_with_its_index_after_its_delay(
    tmp_path: Path, slept: list[float]
) -> None:
    each = repeated([7, 8, 9], [10, 20, 30], wait=5)
    *responses, last = execute(load(tmp_path, REPEAT), each)[each]
    assert last == (None, True)
    outputs = [response.outputs for response, _ in responses if response is not None]
    assert [output["OUT"].array.tolist() for output in outputs] == [[7], [8], [9]]
    assert [output["IDX"].array.tolist() for output in outputs] == [[0], [1], [2]]
    assert not any(final for _, final in responses)
    assert sorted(slept) == [0.005, 0.01, 0.02, 0.03]


def test_repeat_of_nothing_ends_at_once(tmp_path: Path) -> None:
    each = repeated([], [])
    assert execute(load(tmp_path, REPEAT), each)[each] == [(None, True)]


def test_repeat_answers_with_the_wanted_output(tmp_path: Path) -> None:
    each = repeated([7], [0], outputs=("IDX",))
    response, _ = execute(load(tmp_path, REPEAT), each)[each][0]
    assert response is not None
    assert list(response.outputs) == ["IDX"]


def test_repeat_serves_requests_side_by_side(tmp_path: Path) -> None:
    first, second = repeated([1, 2], [0, 0]), repeated([3], [0])
    received = execute(load(tmp_path, REPEAT), first, second)
    assert (len(received[first]), len(received[second])) == (3, 2)


@pytest.mark.parametrize("backend", ["repeat", "square"])
def test_cancelled_request_ends_with_that_error(tmp_path: Path, backend: str) -> None:
    if backend == "repeat":
        model, each = load(tmp_path, REPEAT), repeated([1, 2], [0, 0])
    else:
        model, each = load(tmp_path, SQUARE), request({"IN": np.array([3], np.int32)})
    each.cancel()
    ((response, final),) = execute(model, each)[each]
    assert final
    assert response is not None
    assert isinstance(response.error, CancelledError)


@pytest.mark.parametrize("value", [3, 1, 0, -2])
def test_square_sends_a_number_as_often_as_it_says(tmp_path: Path, value: int) -> None:
    each = request({"IN": np.array([value], np.int32)})
    *responses, last = execute(load(tmp_path, SQUARE), each)[each]
    assert last == (None, True)
    outputs = [response.outputs["OUT"].array.tolist() for response, _ in responses if response is not None]
    assert outputs == [[value]] * max(0, value)


@pytest.mark.parametrize(("values", "outputs"), [([7], {"OUT": [7], "IDX": [0]}), ([], {})])
def test_repeat_that_is_not_decoupled_gives_one_response(
    tmp_path: Path, slept: list[float], values: list[int], outputs: dict[str, list[int]]
) -> None:
    model = load(tmp_path, REPEAT.replace("decoupled: true", ""))
    (response,) = model.run(repeated(values, [20][: len(values)], wait=5))
    assert response.error is None
    assert {name: tensor.array.tolist() for name, tensor in response.outputs.items()} == outputs
    assert slept == [0.02 if values else 0.005]


def test_repeat_that_is_not_decoupled_fails_a_request_for_several_responses(tmp_path: Path) -> None:
    model = load(tmp_path, REPEAT.replace("decoupled: true", ""))
    several, one = model.run(repeated([7, 8], [0, 0]), repeated([9], [0]))
    assert several.error is not None
    assert "is not decoupled and cannot send more than one response, but IN has 2" in several.error.message
    assert one.outputs["OUT"].array.tolist() == [9]


def test_square_has_to_be_decoupled(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"needs model_transaction_policy \{ decoupled: true \}"):
        load(tmp_path, SQUARE.replace("decoupled: true", ""))


@pytest.mark.parametrize("text", [REPEAT, SQUARE])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("backend:", "max_batch_size: 4 backend:", "needs max_batch_size: 0, got 4"),
        (
            '"IN" data_type: TYPE_INT32',
            '"IN" data_type: TYPE_FP32',
            "needs exactly these inputs: IN (TYPE_INT32)",
        ),
        ('"OUT"', '"RESULT"', "needs exactly these outputs: OUT (TYPE_INT32)"),
    ],
)
def test_other_configurations_are_refused(
    tmp_path: Path, text: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, text.replace(old, new, 1))
    assert message in caught.value.message


@pytest.mark.parametrize("backend", ["onnxruntime", "identity"])
def test_backends_with_one_response_a_request_refuse_to_be_decoupled(tmp_path: Path, backend: str) -> None:
    text = f"""
        backend: "{backend}" model_transaction_policy {{ decoupled: true }}
        input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [1] }}
        output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [1] }}
    """
    with pytest.raises(
        InvalidArgumentError, match=f"the backend '{backend}' gives each request one response"
    ):
        load(tmp_path, text, onnx_models.identity(dims=(1,), batching=False))
