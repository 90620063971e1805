"""What the example scripts of Triton's client do with the models `simple…`, over HTTP and gRPC."""

import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.examples.clients import GRPC, HTTP, Client
from tests.support.server import ServerProcess

NUMBERS = np.arange(16).reshape(1, 16)
ONES = np.ones_like(NUMBERS)


@pytest.fixture(params=[HTTP, GRPC], ids=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Client]:
    one = Client(request.param, server)
    yield one
    one.client.close()


@pytest.fixture(params=[HTTP, GRPC], ids=["http", "grpc"])
def controlling(request: pytest.FixtureRequest, controlled_server: ServerProcess) -> Iterator[Client]:
    one = Client(request.param, controlled_server)
    yield one
    one.client.close()


def test_health_and_metadata(client: Client) -> None:
    assert client.client.is_server_live()
    assert client.client.is_server_ready()
    assert client.client.is_model_ready("simple")
    server, model = client.client.get_server_metadata(), client.client.get_model_metadata("simple")
    if client.module is HTTP:
        assert server["name"] == "triton"
        assert model["name"] == "simple"
        assert [one["shape"] for one in model["inputs"]] == [[-1, 16], [-1, 16]]
    else:
        assert server.name == "triton"
        assert model.name == "simple"
        assert [list(one.shape) for one in model.inputs] == [[-1, 16], [-1, 16]]
    with pytest.raises(InferenceServerException, match="Request for unknown model"):
        client.client.get_model_metadata("wrong_model_name")


@pytest.mark.parametrize(("model", "datatype"), [("simple", "INT32"), ("simple_int8", "INT8")])
def test_sum_and_difference(client: Client, model: str, datatype: str) -> None:
    dtype = np.dtype(datatype.lower())
    inputs = client.tensors(datatype, {"INPUT0": NUMBERS.astype(dtype), "INPUT1": ONES.astype(dtype)})
    wanted = [client.module.InferRequestedOutput(name) for name in ("OUTPUT0", "OUTPUT1")]

    for outputs in (wanted, None):
        result = client.client.infer(model, inputs, outputs=outputs)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), NUMBERS + 1)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), NUMBERS - 1)

    with pytest.raises(InferenceServerException) as failure:
        client.client.infer("wrong_model_name", inputs)
    assert failure.value.message().startswith("Request for unknown model")


def test_statistics_count_the_requests(client: Client) -> None:
    inputs = client.tensors("INT32", {"INPUT0": NUMBERS.astype(np.int32), "INPUT1": ONES.astype(np.int32)})

    def count() -> int:
        statistics = client.client.get_inference_statistics("simple")
        if client.module is HTTP:
            [one] = statistics["model_stats"]
            return int(one["inference_count"])
        [one] = statistics.model_stats
        return int(one.inference_count)

    before = count()
    client.client.infer("simple", inputs)
    assert count() == before + 1


def test_strings_are_added_as_numbers(client: Client) -> None:
    def text(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([[str(number).encode() for number in numbers[0]]], dtype=np.object_)

    inputs = client.tensors("BYTES", {"INPUT0": text(NUMBERS), "INPUT1": text(ONES)})

    result = client.client.infer("simple_string", inputs)

    assert [int(value) for value in result.as_numpy("OUTPUT0")[0]] == list(range(1, 17))
    assert [int(value) for value in result.as_numpy("OUTPUT1")[0]] == list(range(-1, 15))


@pytest.mark.parametrize("value", [b"he\x00llo", b"\x00\x01\x02\x03", "grüße".encode(), b""])
def test_identity_gives_strings_back_byte_for_byte(client: Client, value: bytes) -> None:
    strings = np.array([[value] * 16], dtype=np.object_)

    result = client.client.infer("simple_identity", client.tensors("BYTES", {"INPUT0": strings}))

    assert result.as_numpy("OUTPUT0").tolist() == strings.tolist()


def test_many_requests_at_once(client: Client) -> None:
    inputs = client.tensors("INT32", {"INPUT0": NUMBERS.astype(np.int32), "INPUT1": ONES.astype(np.int32)})
    if client.module is HTTP:
        many = HTTP.InferenceServerClient(client.url, concurrency=4)
        results = [request.get_result() for request in [many.async_infer("simple", inputs) for _ in range(8)]]
        many.close()
    else:
        answers: queue.Queue[Any] = queue.Queue()
        for _ in range(8):
            client.client.async_infer("simple", inputs, lambda result, error: answers.put(error or result))
        results = [answers.get(timeout=30) for _ in range(8)]

    for result in results:
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), NUMBERS + 1)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("as_json", [False, True])
def test_compressed_requests_and_responses_over_http(
    server: ServerProcess, algorithm: str, as_json: bool
) -> None:
    inputs = [HTTP.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    inputs[0].set_data_from_numpy(NUMBERS.astype(np.int32), binary_data=not as_json)
    inputs[1].set_data_from_numpy(-ONES.astype(np.int32), binary_data=True)
    outputs = [
        HTTP.InferRequestedOutput("OUTPUT0", binary_data=True),
        HTTP.InferRequestedOutput("OUTPUT1", binary_data=not as_json),
    ]
    with HTTP.InferenceServerClient(server.http) as client:
        result = client.infer(
            "simple",
            inputs,
            outputs=outputs,
            query_params={"test_1": 1, "test_2": 2},
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), NUMBERS - 1)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), NUMBERS + 1)


def test_string_with_a_null_survives_json(server: ServerProcess) -> None:
    strings = np.array([[b"he\x00llo"] * 16], dtype=np.object_)
    tensor = HTTP.InferInput("INPUT0", [1, 16], "BYTES")
    tensor.set_data_from_numpy(strings, binary_data=False)
    output = HTTP.InferRequestedOutput("OUTPUT0", binary_data=False)
    with HTTP.InferenceServerClient(server.http) as client:
        result = client.infer("simple_identity", [tensor], outputs=[output])

    assert result.as_numpy("OUTPUT0").tolist() == [["he\x00llo"] * 16]


def test_decoupled_model_repeats_over_a_stream(server: ServerProcess) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    inputs = {
        "IN": (np.arange(100, 104, dtype=np.int32), "INT32"),
        "DELAY": (np.ones(4, np.uint32), "UINT32"),
        "WAIT": (np.array([1], np.uint32), "UINT32"),
    }
    tensors = []
    for name, (value, datatype) in inputs.items():
        tensors.append(GRPC.InferInput(name, value.shape, datatype))
        tensors[-1].set_data_from_numpy(value)
    with GRPC.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer("repeat_int32", tensors, outputs=[GRPC.InferRequestedOutput("OUT")])
        values = [answers.get(timeout=30).as_numpy("OUT").tolist() for _ in range(4)]
        client.stop_stream()

    assert values == [[100], [101], [102], [103]]


def test_loading_overriding_and_unloading(controlling: Client) -> None:
    control, over_http = controlling.client, controlling.module is HTTP
    index = control.get_model_repository_index()
    # the number that the clients' model control scripts expect
    assert len(index if over_http else index.models) == 8

    control.load_model("simple")
    assert control.is_model_ready("simple")

    with pytest.raises(InferenceServerException, match="failed to load"):
        control.load_model("simple", config='"parameters": {"config": {{"max_batch_size": "16"}}}')
    control.load_model("simple", config='{"max_batch_size":"16"}')
    config = control.get_model_config("simple")
    assert (config["max_batch_size"] if over_http else config.config.max_batch_size) == 16

    control.unload_model("simple")
    assert not control.is_model_ready("simple")

    with pytest.raises(InferenceServerException):
        control.load_model("simple", config="{}", files={"file:" + "A" * 256: b"a"})
    with pytest.raises(InferenceServerException, match="failed to load"):
        control.load_model("wrong_model_name")
    assert control.is_server_live()
