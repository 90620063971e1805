import inspect
import json
import os
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

import halimede
from tests.api import functions
from tests.python_models.support import http_inputs
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[halimede.BackgroundServer]:
    with halimede.serve_in_background(
        functions.greet,
        functions.batched,
        functions.positive,
        functions.positive_later,
        functions.positive_at_once,
        functions.parsed,
        functions.squared,
        functions.upper,
        functions.countdown,
        functions.words,
        functions.rendezvous,
        functions.here,
        functions.Counter,
        functions.add_three,
        functions.Adder(5),
        functions.AdderHere(7),
        functions.tripled,
        functions.Adder(11).doubled,
        functions.wrong,
    ) as server:
        yield server


@pytest.fixture
def client(server: halimede.BackgroundServer) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(server.http, concurrency=4) as client:
        yield client


def infer(client: httpclient.InferenceServerClient, model: str, /, **arrays: Any) -> dict[str, Any]:
    """Output → array."""
    result = client.infer(model, http_inputs(**{key: np.asarray(value) for key, value in arrays.items()}))
    return {each["name"]: result.as_numpy(each["name"]) for each in result.get_response()["outputs"]}


def text(value: str) -> "np.ndarray[Any, Any]":
    return np.array([value.encode()], np.object_)


def stream(server: halimede.BackgroundServer, name: str, **values: Any) -> list[dict[str, Any]]:
    """The responses of a streaming model."""
    request = urllib.request.Request(
        f"{server.url}/v2/models/{name}/generate_stream", json.dumps(values).encode()
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        lines = response.read().decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def test_values_are_what_the_annotations_say(client: httpclient.InferenceServerClient) -> None:
    answer = infer(client, "greet", name=text("you"))
    assert (answer["text"].tolist(), answer["length"].tolist()) == ([b"hello you "], [10])


def test_an_input_with_a_default_may_be_left_out(client: httpclient.InferenceServerClient) -> None:
    assert infer(client, "greet", name=text("you"), times=[2])["text"].tolist() == [b"hello you hello you "]


def test_the_configuration_is_made_of_the_annotations(client: httpclient.InferenceServerClient) -> None:
    metadata = client.get_model_metadata("greet")
    assert metadata["inputs"] == [
        {"name": "name", "datatype": "BYTES", "shape": [1]},
        {"name": "times", "datatype": "INT64", "shape": [1]},
    ]
    config = client.get_model_config("batched")
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 200_000


def test_a_value_error_is_the_callers(client: httpclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="name must not be empty") as caught:
        infer(client, "greet", name=text(""))
    assert caught.value.status() == "400"


def test_another_error_is_the_functions(client: httpclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="LookupError: nobody is there") as caught:
        infer(client, "greet", name=text("nobody"))
    assert caught.value.status() == "500"


def test_a_result_of_another_type_is_an_error(client: httpclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="output 'output' must be FP64"):
        infer(client, "wrong", x=[1.0])


def test_requests_share_a_batch(client: httpclient.InferenceServerClient) -> None:
    def ask(value: int) -> dict[str, Any]:
        return infer(client, "batched", x=np.full((value, 4), value, np.float32))

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, (1, 2, 3)))
    for value, answer in zip((1, 2, 3), answers, strict=True):
        assert answer["output_0"].tolist() == [[2.0 * value] * 4] * value
    assert {int(each["output_1"][0, 0]) for each in answers} == {6}


@pytest.mark.parametrize(
    ("name", "failed"), [("positive", [1]), ("positive_later", [1]), ("positive_at_once", [0, 1, 2])]
)
def test_a_callers_mistake_is_not_told_to_those_who_share_its_batch(
    client: httpclient.InferenceServerClient, name: str, failed: list[int]
) -> None:
    def ask(value: float) -> list[list[float]] | str:
        try:
            return infer(client, name, x=np.full((1, 4), value, np.float32))["output"].tolist()  # type: ignore[no-any-return]
        except InferenceServerException as error:
            # nobody knows whose mistake it was where all of a batch fail
            assert error.status() == ("400" if len(failed) == 1 else "500")  # noqa: PT017 - not all of them fail
            return str(error.message())

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, (1.0, -2.0, 3.0)))
    for index, (value, answer) in enumerate(zip((1.0, -2.0, 3.0), answers, strict=True)):
        told = "-2 is negative" if len(failed) == 1 else "ValueError: -2 is negative"
        assert answer == (told if index in failed else [[value] * 4])


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("parsed", {"text": text("no JSON")}, "JSONDecodeError: Expecting value"),
        ("squared", {"x": np.ones(3, np.float32)}, "ValueError: cannot reshape array of size 3"),
    ],
)
def test_a_value_error_of_a_library_is_the_functions(
    client: httpclient.InferenceServerClient,
    caplog: pytest.LogCaptureFixture,
    name: str,
    given: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(InferenceServerException, match=message) as caught:
        infer(client, name, **given)
    assert caught.value.status() == "500"
    wait_until(lambda: f"{name} failed\nTraceback" in caplog.text, "the traceback in the log")
    assert message in caplog.text


def test_a_batch_of_texts_is_a_list(client: httpclient.InferenceServerClient) -> None:
    texts = np.array([[b"a"], [b"b"]], np.object_)
    assert infer(client, "upper", texts=texts)["output"].tolist() == [[b"A"], [b"B"]]


def test_a_generator_streams(server: halimede.BackgroundServer) -> None:
    assert [each["output"] for each in stream(server, "countdown", n=3)] == [3, 2, 1]
    assert [each["output"] for each in stream(server, "words", text="a b c")] == ["a", "b", "c"]


def test_an_error_of_a_generator_ends_its_stream(server: halimede.BackgroundServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        stream(server, "countdown", n=-1)
    with caught.value as error:
        assert b"n must not be negative" in error.read()


def test_calls_of_a_coroutine_run_side_by_side(client: httpclient.InferenceServerClient) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda value: infer(client, "rendezvous", x=[value]), (4.0, 9.0))
    assert [each["output"].tolist() for each in answers] == [[2.0], [3.0]]


def test_isolation_none_runs_in_the_servers_process(client: httpclient.InferenceServerClient) -> None:
    answer = infer(client, "here", x=np.array([1, 2, 3], np.int32))
    assert answer["output_0"].tolist() == [3, 2, 1]
    assert answer["output_1"].tolist() == [os.getpid()]


def test_an_object_of_a_class_keeps_what_it_has(client: httpclient.InferenceServerClient) -> None:
    [before] = infer(client, "counter", by=[2])["output"].tolist()
    assert infer(client, "counter", by=[3])["output"].tolist() == [before + 3]


def test_a_closure_is_served_by_value() -> None:
    factor = 3.0

    def multiply(x: float) -> float:
        return x * factor

    with (
        halimede.serve_in_background(multiply) as server,
        httpclient.InferenceServerClient(server.http) as client,
    ):
        assert infer(client, "multiply", x=[2.0])["output"].tolist() == [6.0]
        assert repr(server) == f"<halimede server at http://{server.http}>"
    assert repr(server) == "<halimede server, stopped>"
    server.stop()


def test_a_model_that_does_not_load_raises_with_the_reason() -> None:
    @halimede.model
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no weights")

        def __call__(self, x: float) -> float:
            return x

    with pytest.raises(RuntimeError, match=r"'Broken': .*no weights"):
        halimede.serve_in_background(Broken)


def test_what_cannot_be_sent_to_a_process_is_told_with_what_to_do() -> None:
    frame = inspect.currentframe()

    def uses_a_frame(x: float) -> float:
        return x if frame else -x

    with pytest.raises(
        halimede.DeclarationError, match=r"cannot be sent to its process: .*__init__ of a class"
    ):
        halimede.serve_in_background(uses_a_frame)


def test_a_wrong_flag_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="there is no argument 'http_prt'; did you mean 'http_port'"):
        halimede.serve_in_background(functions.greet, http_prt=1)
    with pytest.raises(ValueError, match="http_port: 'x' is not a whole number"):
        halimede.serve_in_background(functions.greet, http_port="x")


@pytest.mark.parametrize(
    ("name", "result"),
    [("add_three", 5), ("Adder", 7), ("in_process", 9), ("tripled", 6), ("doubled", 15)],
)
def test_objects_methods_and_partials_are_served(
    server: halimede.BackgroundServer, name: str, result: float
) -> None:
    """The first by its name in a module; those without one by value, or where they are."""
    assert server.model(name)(x=2.0)["output"].item() == result


def test_an_object_keeps_the_default_values_of_its_call(server: halimede.BackgroundServer) -> None:
    assert server.model("add_three")(x=2.0, factor=4.0)["output"].item() == 11


def test_a_model_that_streams_cannot_be_called_for_one_response(server: halimede.BackgroundServer) -> None:
    countdown = server.model("countdown")
    assert countdown(n=1)["output"].item() == 1
    with pytest.raises(ValueError, match=r"'countdown' streams its responses; iterate over infer\(inputs\)"):
        countdown(n=3)
    with pytest.raises(ValueError, match="'countdown' gave no response"):
        countdown(n=0)


@pytest.mark.parametrize("target", [len, np.add, print])
def test_what_is_not_written_in_python_is_refused(target: Any) -> None:
    with pytest.raises(halimede.DeclarationError, match="is not written in Python"):
        halimede.serve_in_background(target)
