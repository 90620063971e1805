"""`generate` and `generate_stream` as clients see them."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from halimede.codec.json_pieces import PIECE_NUMBERS
from halimede.core.datatypes import FP16, FP32
from halimede.core.errors import InternalError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.scheduling.flow import MAX_UNTAKEN
from halimede.frontends.http.generate import Generate
from halimede.frontends.http.routes import Call, find_route
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.restrictions import HeaderPattern, compile_forward_pattern
from halimede.net.receiving import ReceiveBudget
from tests.frontends.grpc.service_fakes import FakeEngine, FakeModel
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import Answer, Client, Served, post, serve
from tests.frontends.producers import ProducerEngine
from tests.support.waiting import wait_until

NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)

PARAMETERS = {"param0": "an example string parameter", "param1": 42, "param2": False, "param3": 123.123}
"""What the identity backend adds to each response."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    settings = HttpSettings(max_input_size=10_000, forward_pattern=compile_forward_pattern("^x-"))
    with serve_models(directory, settings, "echo", "strings", "half", "slow", "square") as running:
        yield running


def ask(served: Served, model: str, body: object, call: str = "generate", *headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with served.client() as client:
        return client.ask(post(data, f"/v2/models/{model}/{call}", *headers))


def events(answer: Answer) -> list[dict[str, Any]]:
    """The events of a stream, whose framing must be right."""
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *found, end = answer.body.split(b"\n\n")
    assert end == b""
    assert all(event.startswith(b"data: ") for event in found)
    return [json.loads(event[6:]) for event in found]


# real models


def test_generate_answers_with_one_object(server: ModelServer) -> None:
    answer = ask(server.served, "strings", {"INPUT0": "hello", "id": "7"})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    expected = {"id": "7", "model_name": "strings", "model_version": "1", "OUTPUT0": "hello"}
    assert json.loads(answer.body) == expected | PARAMETERS


def test_a_version_may_be_named(server: ModelServer) -> None:
    answer = ask(server.served, "echo/versions/1", {"INPUT0": [1, 2.5]})
    expected = {"model_name": "echo", "model_version": "1", "OUTPUT0": [1.0, 2.5]}
    assert json.loads(answer.body) == expected | PARAMETERS


def test_generate_stream_of_an_ordinary_model_is_one_event(server: ModelServer) -> None:
    answer = ask(server.served, "echo", {"INPUT0": 3}, "generate_stream")
    assert answer.status == 200
    assert events(answer) == [{"model_name": "echo", "model_version": "3", "OUTPUT0": 3.0} | PARAMETERS]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_generate_stream_sends_each_response_as_an_event(server: ModelServer, count: int) -> None:
    answer = ask(server.served, "square", {"IN": count}, "generate_stream")
    assert answer.status == 200
    assert events(answer) == [{"model_name": "square", "model_version": "1", "OUT": count}] * count


def test_generate_takes_a_decoupled_model_that_answers_once(server: ModelServer) -> None:
    answer = ask(server.served, "square", {"IN": 1})
    assert json.loads(answer.body)["OUT"] == 1


@pytest.mark.parametrize("count", [0, 2, 3])
def test_generate_wants_exactly_one_response(server: ModelServer, count: int) -> None:
    answer = ask(server.served, "square", {"IN": count})
    assert (answer.status, json.loads(answer.body)) == (500, {"error": NOT_ONE})


def test_connections_go_on_after_a_stream(server: ModelServer) -> None:
    with server.served.client() as client:
        for _ in range(3):
            client.send(post(b'{"IN": 2}', "/v2/models/square/generate_stream") * 2)
            client.send(post(b'{"INPUT0": "x"}', "/v2/models/strings/generate"))
            assert [len(events(client.read())) for _ in range(2)] == [2, 2]
            assert json.loads(client.read().body)["OUTPUT0"] == "x"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("none/generate", {}, 404, "Request for unknown model: 'none' is not found"),
        ("echo/versions/2/generate", {}, 404, "Request for unknown model: 'echo' version 2 is not found"),
        ("echo/generate", {"INPUT0": "x"}, 400, "attempt to access JSON non-number as double"),
        (
            "strings/generate",
            {"INPUT0": ["a", "b"]},
            400,
            "can not convert input 'INPUT0' to tensor with proper",
        ),
        ("echo/generate", {}, 400, "expected 1 inputs but got 0 inputs for model 'echo'"),
        ("echo/generate", {"x": {}}, 400, "parameter 'x' has invalid type."),
        ("echo/generate", {"INPUT0": [0] * 10_000}, 400, "exceeds the maximum allowed "),
        ("half/generate", {"INPUT0": [1, 2]}, 400, "receiving FP16 data via JSON is not supported"),
    ],
)
@pytest.mark.parametrize("stream", ["", "_stream"])
def test_a_request_that_is_refused_gets_a_plain_error(
    server: ModelServer, path: str, body: object, status: int, message: str, stream: str
) -> None:
    model, _, call = path.rpartition("/")
    answer = ask(server.served, model, body, call + stream)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert message in json.loads(answer.body)["error"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_compressed_requests_are_refused(server: ModelServer, encoding: str) -> None:
    answer = ask(server.served, "echo", {"INPUT0": 1}, "generate", f"Content-Encoding: {encoding}")
    error = {"error": "Unsupported content-encoding, only 'identity' is supported."}
    assert (answer.status, json.loads(answer.body)) == (400, error)
    assert ask(server.served, "echo", {"INPUT0": 1}, "generate", "Content-Encoding: identity").status == 200


def test_only_post_is_served(server: ModelServer) -> None:
    with server.served.client() as client:
        client.send(b"GET /v2/models/echo/generate_stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.read("GET").status == 405


# a model in the test's hands


class Held:
    """Serves one model whose responses the test sends."""

    def __init__(
        self, served: Served, model: FakeModel, arrived: threading.Semaphore, budget: ReceiveBudget
    ) -> None:
        self.served = served
        self.model = model
        self.budget = budget
        self._arrived = arrived

    def wait(self) -> InferRequest:
        """The next request."""
        assert self._arrived.acquire(timeout=60)
        return self.model.requests[-1]

    def respond(self, *responses: tuple[InferResponse | None, bool]) -> None:
        """Send these responses to the last request in one turn of the loop."""
        request = self.model.requests[-1]

        def send() -> None:
            for response, final in responses:
                request.respond(response, final)

        self.served.loop.call(send)


def handler(engine: object, pattern: HeaderPattern | None = None) -> Callable[[Exchange], None]:
    generate = Generate(engine, 1_000_000, pattern)  # type: ignore[arg-type]  # a fake

    def handle(exchange: Exchange) -> None:
        route = find_route(exchange.path)
        assert route is not None
        call = generate.generate if route.call is Call.GENERATE else generate.generate_stream
        call(exchange, route)

    return handle


@pytest.fixture
def held() -> Iterator[Held]:
    arrived = threading.Semaphore(0)
    model = FakeModel("m", decoupled=True, answer=lambda request: arrived.release())
    budget = ReceiveBudget(64 << 20)
    with serve(handler(FakeEngine(model), compile_forward_pattern("^x-")), budget=budget) as served:
        yield Held(served, model, arrived, budget)


@pytest.fixture
def client(held: Held) -> Iterator[Client]:
    with held.served.client() as opened:
        yield opened


ONE = (InferResponse(parameters={"n": 1}), False)
TWO = (InferResponse(parameters={"n": 2}), False)
LAST = (InferResponse(parameters={"n": 9}), True)
FULL = (InferResponse(error=UnavailableError("full")), False)
END = (None, True)
FRAME = {"model_name": "m", "model_version": "1"}


@pytest.mark.parametrize(
    ("responses", "status", "body"),
    [
        ((LAST,), 200, {**FRAME, "n": 9}),
        ((ONE, END), 200, {**FRAME, "n": 1}),
        (((InferResponse(), True),), 200, FRAME),
        ((FULL, END), 503, {"error": "full"}),
        ((END,), 500, {"error": NOT_ONE}),
        ((ONE, TWO), 500, {"error": NOT_ONE}),
        ((ONE, FULL), 503, {"error": "full"}),
        ((FULL, ONE), 503, {"error": "full"}),
    ],
)
def test_generate_and_what_the_model_sends(
    held: Held, client: Client, responses: Any, status: int, body: object
) -> None:
    client.send(post(b"{}", "/v2/models/m/generate"))
    request = held.wait()
    held.respond(*responses)
    answer = client.read()
    assert (answer.status, json.loads(answer.body)) == (status, body)
    assert request.cancelled is not responses[-1][1]  # nobody waits for a third


@pytest.mark.parametrize(
    ("responses", "status", "expected"),
    [
        ((ONE, TWO, END), 200, [{**FRAME, "n": 1}, {**FRAME, "n": 2}]),
        ((ONE, LAST), 200, [{**FRAME, "n": 1}, {**FRAME, "n": 9}]),
        ((END,), 200, []),
        (((InferResponse(), True),), 200, [FRAME]),
        ((ONE, FULL, LAST), 200, [{**FRAME, "n": 1}, {"error": "full"}, {**FRAME, "n": 9}]),
        ((FULL, LAST), 503, [{"error": "full"}, {**FRAME, "n": 9}]),
        (((InferResponse(error=InternalError("it broke")), True),), 500, [{"error": "it broke"}]),
    ],
)
def test_generate_stream_and_what_the_model_sends(
    held: Held, client: Client, responses: Any, status: int, expected: object
) -> None:
    client.send(post(b"{}", "/v2/models/m/generate_stream"))
    held.wait()
    held.respond(*responses)
    answer = client.read()
    assert (answer.status, events(answer)) == (status, expected)


def test_events_are_sent_as_they_come(held: Held, client: Client) -> None:
    client.send(post(b'{"id": "a"}', "/v2/models/m/generate_stream"))
    held.wait()
    held.respond(ONE)
    while client.read_line() != b"\r\n":
        pass
    event = b'data: {"id":"a","model_name":"m","model_version":"1","n":1}\n\n'
    assert client.read_line() == b"%x\r\n" % len(event)
    assert client.read_line() + client.read_line() == event
    assert client.read_line() == b"\r\n"
    held.respond(TWO, LAST)
    assert client.read_line() == b"%x\r\n" % (2 * len(event))


def test_an_output_without_json_form_is_an_error_event(held: Held, client: Client) -> None:
    client.send(post(b"{}", "/v2/models/m/generate_stream"))
    held.wait()
    held.respond(ONE, (InferResponse({"H": Tensor(FP16, (1,), b"\0\0")}), False), END)
    first, second = events(client.read())
    assert first["n"] == 1
    assert second["error"].startswith("sending FP16 data via JSON is not supported")


def test_parameters_and_forwarded_headers_reach_the_model(held: Held, client: Client) -> None:
    client.send(post(b'{"a": 1, "x-b": "body", "id": "7"}', "/v2/models/m/generate", "X-A: 1", "X-B: 2"))
    request = held.wait()
    held.respond(LAST)
    assert client.read().status == 200
    assert request.id == "7"
    assert request.parameters == {"X-A": "1", "X-B": "2", "x-b": "body", "a": 1, "id": "7"}


def test_the_last_of_repeated_headers_is_forwarded_and_another_case_is_another_name(
    held: Held, client: Client
) -> None:
    client.send(post(b"{}", "/v2/models/m/generate", "x-a: 1", "X-A: 2", "x-a: 3", "x-b: 4"))
    request = held.wait()
    held.respond(LAST)
    assert client.read().status == 200
    assert request.parameters == {"x-a": "3", "X-A": "2", "x-b": "4"}


def test_a_forwarded_header_keeps_the_spaces_at_its_end(held: Held, client: Client) -> None:
    client.send(post(b"{}", "/v2/models/m/generate", "x-a:  two words \t", "x-a-too: 1"))
    request = held.wait()
    held.respond(LAST)
    assert client.read().status == 200
    assert request.parameters == {"x-a": "two words \t", "x-a-too": "1"}


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
def test_a_client_that_leaves_cancels_its_request(held: Held, call: str) -> None:
    gone = threading.Event()
    with held.served.client() as client:
        client.send(post(b"{}", f"/v2/models/m/{call}"))
        request = held.wait()
        request.on_cancel = lambda _: gone.set()
        held.respond(ONE)
    assert gone.wait(60)
    held.respond(TWO, LAST)  # too late, and no error


def test_a_model_that_refuses_at_once_gets_no_event_stream(held: Held, client: Client) -> None:
    error = InferResponse(error=InvalidArgumentError("wrong shape"))
    held.model._answer = lambda request: request.respond(error, True)  # noqa: SLF001 - the fake's own answer, of this package
    answer = client.ask(post(b"{}", "/v2/models/m/generate_stream"))
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert json.loads(answer.body) == {"error": "wrong shape"}


@pytest.mark.parametrize("call", ["generate", "generate_stream"])
def test_a_response_that_cannot_be_encoded_is_500_and_cancels(
    held: Held, client: Client, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.send(post(b"{}", f"/v2/models/m/{call}"))
    request = held.wait()
    held.respond((InferResponse(parameters={"bad": object()}), call == "generate"))  # type: ignore[dict-item]
    answer = client.read()
    assert answer.status == 500
    assert b"internal error" in answer.body
    assert request.cancelled is (call == "generate_stream")
    assert "failed" in caplog.text


# a client that reads slowly


class Slow:
    """A producer's server."""

    def __init__(self, served: Served, engine: ProducerEngine) -> None:
        self.served = served
        self.producer = engine.producer


@pytest.fixture
def slow() -> Iterator[Slow]:
    handle: list[Callable[[Exchange], None]] = []
    with serve(lambda exchange: handle[0](exchange), kernel_bytes=1 << 16) as served:
        engine = ProducerEngine(served.loop)
        handle.append(handler(engine))
        yield Slow(served, engine)
        served.loop.call(engine.clock.close)


def receive_little(client: Client) -> None:
    """Let the kernel keep little of what the client does not read, so that a short stream is enough."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)


def stream_request(identifier: str, count: int, size: int) -> bytes:
    body = json.dumps({"id": identifier, "COUNT": count, "SIZE": size}).encode()
    return post(body, "/v2/models/producer/generate_stream")


@pytest.mark.parametrize(("count", "size"), [(10_000, 1000), (300, 100_000)])
def test_a_client_that_stops_reading_holds_its_model_back_and_no_other(
    slow: Slow, count: int, size: int
) -> None:
    producer = slow.producer
    producer.expect("slow")
    with slow.served.client() as stalled, slow.served.client() as other:
        receive_little(stalled)
        stalled.send(stream_request("slow", count, size))
        assert producer.held["slow"].wait(60)
        made = producer.made["slow"]
        assert made < count / 2
        other.send(stream_request("quick", 100, size) * 2)
        assert [len(events(other.read())) for _ in range(2)] == [100, 100]
        assert producer.made["slow"] <= made + MAX_UNTAKEN + 1

        assert len(events(stalled.read())) == count
        assert producer.ended["slow"].wait(60)


def test_a_slow_client_that_leaves_lets_its_model_go(slow: Slow) -> None:
    producer = slow.producer
    producer.expect("slow")
    with slow.served.client() as stalled:
        stalled.send(stream_request("slow", 50_000, 1000))
        assert producer.held["slow"].wait(60)
    assert producer.ended["slow"].wait(60)
    assert producer.made["slow"] < 50_000


def test_a_stream_that_waits_its_turn_holds_its_model_back(slow: Slow) -> None:
    producer = slow.producer
    for identifier in ("first", "second"):
        producer.expect(identifier)
    with slow.served.client() as client:
        receive_little(client)
        client.send(stream_request("first", 10_000, 1000) + stream_request("second", 5_000, 10))
        assert producer.held["first"].wait(60)
        assert producer.held["second"].wait(60)
        assert producer.made["second"] < 1000
        assert [len(events(client.read())) for _ in range(2)] == [10_000, 5_000]


# large responses

COUNT = 300_000
LARGE = InferResponse({"OUT": Tensor.from_array(FP32, np.arange(COUNT, dtype=np.float32))})
NUMBERS = [float(number) for number in range(COUNT)]


def turns_of(held: Held) -> Callable[[], int]:
    """Counts the turns of the server's loop."""
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        held.served.loop.loop.call_soon(turn)

    held.served.loop.call(turn)
    return lambda: turns


def test_others_have_turns_while_a_large_response_is_encoded(held: Held, client: Client) -> None:
    client.send(post(b"{}", "/v2/models/m/generate"))
    held.wait()
    turns = turns_of(held)
    before: list[int] = []
    request = held.model.requests[-1]

    def respond() -> None:
        before.append(turns())
        request.respond(LARGE, True)

    held.served.loop.call(respond)
    assert json.loads(client.read().body)["OUT"] == NUMBERS
    assert turns() - before[0] >= COUNT // PIECE_NUMBERS


def test_events_after_a_large_one_wait_for_it_and_the_model_waits_with_them(
    held: Held, client: Client
) -> None:
    client.send(post(b"{}", "/v2/models/m/generate_stream"))
    held.wait()
    request = held.model.requests[-1]
    congested: list[bool] = []

    def respond() -> None:
        for response in (ONE[0], LARGE, TWO[0], LARGE):
            request.respond(response, False)
        congested.append(request.congested)
        request.respond(*LAST)

    held.served.loop.call(respond)
    first, large, second, again, last = events(client.read())
    assert (first, second, last) == ({**FRAME, "n": 1}, {**FRAME, "n": 2}, {**FRAME, "n": 9})
    assert large["OUT"] == again["OUT"] == NUMBERS
    assert congested == [True]


def test_a_model_that_waited_for_a_large_event_goes_on(held: Held, client: Client) -> None:
    client.send(post(b"{}", "/v2/models/m/generate_stream"))
    held.wait()
    held.respond((LARGE, False))
    wait_until(lambda: not held.model.requests[-1].congested)
    held.respond(LAST)
    assert [list(event)[-1] for event in events(client.read())] == ["OUT", "n"]


def test_a_large_event_without_memory_ends_the_stream(held: Held, client: Client) -> None:
    client.send(post(b"{}", "/v2/models/m/generate_stream"))
    held.wait()
    held.respond(ONE)
    held.budget.unsent.held += held.budget.unsent.limit
    held.respond((LARGE, False))
    first, failure = events(client.read())
    assert first == {**FRAME, "n": 1}
    assert "too little memory" in failure["error"]
    assert held.model.requests[-1].cancelled
