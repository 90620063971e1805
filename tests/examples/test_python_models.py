"""What the shipped examples of Triton's Python backend show, with Triton's clients over HTTP and gRPC."""

import json
import shutil
import urllib.request
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.examples.clients import GRPC, HTTP, Client, Stream
from tests.support.server import ServerProcess, start_server

EXAMPLES = Path("examples/python")
FIRST, SECOND = np.array([0.5, 1, 2, 4], np.float32), np.array([1, 1, 2, 2], np.float32)


def write_repository(directory: Path) -> Path:
    """The examples, a variant of one, and the models of the tests' own."""
    shutil.copytree(EXAMPLES / "models", directory)
    shutil.copytree(Path(__file__).parent / "models", directory, dirs_exist_ok=True)
    wide = directory / "repeat_wide"
    shutil.copytree(directory / "repeat_int32", wide)
    config = (wide / "config.pbtxt").read_text().replace("repeat_int32", "repeat_wide")
    parameter = 'parameters { key: "output_num_elements" value { string_value: "3" } }\n'
    (wide / "config.pbtxt").write_text(config + parameter)
    return directory


@pytest.fixture(scope="module")
def python_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = write_repository(tmp_path_factory.mktemp("python") / "models")
    with start_server(repository) as running:
        yield running


@pytest.fixture(params=[HTTP, GRPC], ids=["http", "grpc"])
def client(request: pytest.FixtureRequest, python_server: ServerProcess) -> Iterator[Client]:
    one = Client(request.param, python_server)
    yield one
    one.client.close()


def operands(client: Client, first: np.ndarray[Any, Any] = FIRST) -> list[Any]:
    second = np.broadcast_to(SECOND, first.shape).copy()
    return client.tensors("FP32", {"INPUT0": first, "INPUT1": second})


def assert_sum_and_difference(result: Any, first: np.ndarray[Any, Any] = FIRST) -> None:
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + SECOND)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - SECOND)


@pytest.mark.parametrize("model", ["add_sub", "add_sub_layer", "nobatch_auto_complete"])
def test_sum_and_difference(client: Client, model: str) -> None:
    assert_sum_and_difference(client.client.infer(model, operands(client)))


def test_only_the_requested_output_comes_back(client: Client) -> None:
    output = client.module.InferRequestedOutput("OUTPUT1")

    result = client.client.infer("add_sub", operands(client), outputs=[output])

    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
    assert result.as_numpy("OUTPUT0") is None


@pytest.mark.parametrize(
    ("model", "max_batch_size"), [("batch_auto_complete", 4), ("nobatch_auto_complete", 0)]
)
def test_configuration_is_completed_from_python(
    python_server: ServerProcess, model: str, max_batch_size: int
) -> None:
    status, body = python_server.get(f"/v2/models/{model}/config")

    config = json.loads(body)
    assert status == 200
    assert config["max_batch_size"] == max_batch_size
    assert ("dynamic_batching" in config) == (max_batch_size > 0)
    for side, names in (("input", ["INPUT0", "INPUT1"]), ("output", ["OUTPUT0", "OUTPUT1"])):
        assert [one["name"] for one in config[side]] == names
        assert [(one["data_type"], one["dims"]) for one in config[side]] == [("TYPE_FP32", [4])] * 2


def test_completed_model_takes_batches(client: Client) -> None:
    first = np.stack([FIRST, FIRST * 2, FIRST * 3])

    assert_sum_and_difference(client.client.infer("batch_auto_complete", operands(client, first)), first)

    with pytest.raises(InferenceServerException, match="batch"):
        client.client.infer("batch_auto_complete", operands(client, np.stack([FIRST] * 5)))


def named(client: Client, model: str) -> list[Any]:
    name = client.tensors("BYTES", {"MODEL_NAME": np.array([model.encode()], np.object_)})
    return name + operands(client)


@pytest.mark.parametrize("model", ["add_sub", "add_sub_layer"])
def test_bls_asks_the_model_that_the_request_names(client: Client, model: str) -> None:
    assert_sum_and_difference(client.client.infer("bls_sync", named(client, model)))


def test_bls_tells_of_an_undefined_model(client: Client) -> None:
    expected = (
        "Failed for execute the inference request. Model 'undefined' is not ready. Request for unknown model"
    )
    with pytest.raises(InferenceServerException, match=expected):
        client.client.infer("bls_sync", named(client, "undefined"))

    assert_sum_and_difference(client.client.infer("bls_sync", named(client, "add_sub")))


def test_bls_gathers_from_two_models(client: Client) -> None:
    assert_sum_and_difference(client.client.infer("bls_async", operands(client)))


@pytest.mark.parametrize("number", [4, 2, 0, 1])
def test_bls_adds_up_what_a_decoupled_model_sends(client: Client, number: int) -> None:
    result = client.client.infer(
        "bls_decoupled", client.tensors("INT32", {"IN": np.array([number], np.int32)})
    )

    assert result.as_numpy("OUT").tolist() == [number**2]


@pytest.mark.parametrize(("model", "calls"), [("bls_decoupled_sync", 1), ("bls_decoupled_async", 2)])
@pytest.mark.parametrize("number", [4, 2, 0, 1])
def test_output_keeps_the_datatype_that_the_model_gave_it(
    client: Client, model: str, calls: int, number: int
) -> None:
    result = client.client.infer(model, client.tensors("INT32", {"IN": np.array([number], np.int32)}))

    total = result.as_numpy("SUM")
    assert total.dtype == np.int64  # the configuration says INT32
    assert total.tolist() == [calls * number**2]


def test_instances_share_custom_metrics(python_server: ServerProcess) -> None:
    http = HTTP.InferenceServerClient(python_server.http, concurrency=6)
    tensor = HTTP.InferInput("VALUES", [3], "FP32")
    tensor.set_data_from_numpy(np.array([0.0625, 0.5, 50], np.float32))
    for one in [http.async_infer("custom_metrics", [tensor]) for _ in range(12)]:
        one.get_result()
    http.close()

    _, body = python_server.get("/metrics", python_server.metrics)
    lines = [line for line in body.decode().splitlines() if "example_" in line]
    labels = 'model="custom_metrics",version="1"'
    assert lines == [
        "# HELP example_values Values received",
        "# TYPE example_values counter",
        f"example_values{{{labels}}} 36",
        "# HELP example_last_size Number of values in the latest request",
        "# TYPE example_last_size gauge",
        f"example_last_size{{{labels}}} 3",
        "# HELP example_value The values",
        "# TYPE example_value histogram",
        f"example_value_count{{{labels}}} 36",
        f"example_value_sum{{{labels}}} {12 * 50.5625:g}",
        f'example_value_bucket{{{labels},le="0.1"}} 12',
        f'example_value_bucket{{{labels},le="1"}} 24',
        f'example_value_bucket{{{labels},le="10"}} 24',
        f'example_value_bucket{{{labels},le="+Inf"}} 36',
    ]
    python_server.wait_for('"values received so far: 36"')


def repeated(client: Client, elements: list[int], delays_ms: list[int] | None = None) -> list[Any]:
    delay = np.array(delays_ms or [1] * len(elements), np.uint32)
    delays = {"DELAY": delay, "WAIT": np.array([0], np.uint32)}
    return client.tensors("INT32", {"IN": np.array(elements, np.int32)}) + client.tensors("UINT32", delays)


@pytest.mark.parametrize(("model", "width"), [("repeat_int32", 1), ("repeat_wide", 3)])
def test_decoupled_model_sends_each_element(python_server: ServerProcess, model: str, width: int) -> None:
    with Stream(python_server) as stream:
        stream.send(model, repeated(stream.grpc, [4, 2, 0, 1]), enable_empty_final_response=True)
        results = [stream.receive() for _ in range(4)]
        last = stream.receive().get_response()

    assert [one.as_numpy("OUT").tolist() for one in results] == [[value] * width for value in (4, 2, 0, 1)]
    assert [one.as_numpy("IDX").tolist() for one in results] == [[0], [1], [2], [3]]
    assert not any(one.get_response().parameters["triton_final_response"].bool_param for one in results)
    assert last.parameters["triton_final_response"].bool_param
    assert not last.outputs


def test_decoupled_model_may_send_nothing(python_server: ServerProcess) -> None:
    with Stream(python_server) as stream:
        stream.send("repeat_int32", repeated(stream.grpc, []), enable_empty_final_response=True)
        response = stream.receive().get_response()

    assert response.parameters["triton_final_response"].bool_param
    assert not response.outputs


def test_stream_carries_the_responses_of_many_requests(python_server: ServerProcess) -> None:
    numbers = {"four": 4, "none": 0, "two": 2, "many": 50}
    counts: Counter[str] = Counter()
    with Stream(python_server) as stream:
        for name, number in numbers.items():
            tensors = stream.grpc.tensors("INT32", {"IN": np.array([number], np.int32)})
            stream.send("square_int32", tensors, request_id=name, enable_empty_final_response=True)
        unfinished = set(numbers)
        while unfinished:
            result = stream.receive()
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                unfinished.remove(response.id)
            if response.outputs:
                assert result.as_numpy("OUT").tolist() == [numbers[response.id]]
                counts[response.id] += 1

    assert counts == {name: number for name, number in numbers.items() if number}


def test_responses_of_two_requests_interleave(python_server: ServerProcess) -> None:
    with Stream(python_server) as stream:
        stream.send("repeat_int32", repeated(stream.grpc, [1, 2], delays_ms=[0, 500]))
        arrived = [stream.receive()]
        stream.send("repeat_int32", repeated(stream.grpc, [3, 4]))
        arrived += [stream.receive() for _ in range(3)]

    assert [one.as_numpy("OUT")[0] for one in arrived] == [1, 3, 4, 2]


def test_decoupled_model_is_refused_over_plain_http(python_server: ServerProcess) -> None:
    http = Client(HTTP, python_server)
    expected = "doesn't support models with decoupled transaction policy"
    with pytest.raises(InferenceServerException, match=expected):
        http.client.infer("repeat_int32", repeated(http, [1]))
    http.client.close()


def test_decoupled_model_streams_events_over_http(python_server: ServerProcess) -> None:
    body = json.dumps({"IN": [4, 2], "DELAY": [1, 1], "WAIT": 0}).encode()
    url = f"http://{python_server.http}/v2/models/repeat_int32/generate_stream"
    with urllib.request.urlopen(url, body, timeout=30) as response:
        events = [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]

    assert [(event["OUT"], event["IDX"]) for event in events] == [(4, 0), (2, 1)]


@pytest.fixture(scope="module")
def pytorch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if find_spec("torch") is None:  # the test itself does not import it: this process forks later on
        pytest.skip("the model is made with PyTorch, which is not installed")
    repository = write_repository(tmp_path_factory.mktemp("pytorch") / "models")
    config = repository / "bls_async" / "config.pbtxt"
    config.write_text(config.read_text().replace('"add_sub_layer"', '"pytorch"'))
    with start_server(repository, f"--model-repository={EXAMPLES / 'pytorch' / 'models'}") as running:
        yield running


def test_pytorch_module_alone_and_through_bls(pytorch_server: ServerProcess) -> None:
    for module in (HTTP, GRPC):
        client = Client(module, pytorch_server)
        assert_sum_and_difference(client.client.infer("pytorch", operands(client)))
        assert_sum_and_difference(client.client.infer("bls_sync", named(client, "pytorch")))
        assert_sum_and_difference(client.client.infer("bls_async", operands(client)))
        client.client.close()
