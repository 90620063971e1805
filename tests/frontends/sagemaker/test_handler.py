"""Every call of the SageMaker front end, on an engine of fakes."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from halimede.codec.sagemaker_media_type import BINARY, json_length
from halimede.core.errors import (
    AlreadyExistsError,
    CancelledError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.lifecycle.hosted_models import HostedModel
from halimede.frontends.restrictions import Restriction, compile_forward_pattern
from halimede.frontends.sagemaker.handler import create_handler
from halimede.frontends.sagemaker.settings import InferenceType, PingMode, SagemakerSettings
from tests.frontends.grpc.service_fakes import echo
from tests.frontends.http.serving import Answer, Served, get, post, serve
from tests.frontends.sagemaker.fakes import FakeHosted, HostingEngine, fake_model

KEY = "0123456789abcdef"
URL = f"/opt/ml/models/{KEY}/model"
LOAD = json.dumps({"model_name": KEY, "url": URL}).encode()
VALUES = np.array([1.5, -2, 0.25], "<f4")
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"


class Endpoint:
    """The front end on a socket, and the engine behind it."""

    def __init__(self, served: Served, engine: HostingEngine) -> None:
        self.served = served
        self.engine = engine

    @property
    def hosted(self) -> FakeHosted:
        return self.engine.hosted

    def ask(self, request: bytes, method: str = "POST") -> Answer:
        with self.served.client() as client:
            return client.ask(request, method)

    def plain(self, request: bytes) -> tuple[int, bytes]:
        answer = self.ask(request)
        return answer.status, answer.body

    def error(self, request: bytes) -> tuple[int, str]:
        """Status and text of an answer that must be an error."""
        answer = self.ask(request)
        document = json.loads(answer.body)
        assert list(document) == ["error"]
        assert answer.headers["content-type"] == "application/json"
        return answer.status, document["error"]


@contextmanager
def endpoint(
    *models: Any, hosted: FakeHosted | None = None, settings: SagemakerSettings | None = None
) -> Iterator[Endpoint]:
    engine = HostingEngine(*models, hosted=hosted)
    handler = create_handler(engine, settings)  # type: ignore[arg-type]  # a fake
    with serve(handler, json_length=json_length) as served:
        yield Endpoint(served, engine)


def hosting(alias: str = "", key: str = KEY, **more: Any) -> Any:
    """An endpoint with one hosted model, which echoes unless said otherwise."""
    model = fake_model(alias or key, **{"answer": echo, **more})
    return endpoint(model, hosted=FakeHosted(HostedModel(key, f"/opt/ml/models/{key}", alias, alias or key)))


def answering(error: HalimedeError) -> Callable[[InferRequest], None]:
    return lambda request: request.respond(InferResponse(error=error), True)


def request(method: str, path: str, *headers: str) -> bytes:
    return get(path, *headers).replace(b"GET", method.encode(), 1)


def infer_json(**more: Any) -> bytes:
    entry = {"name": "INPUT0", "shape": [3], "datatype": "FP32", "data": VALUES.tolist()}
    return json.dumps({"inputs": [entry], **more}).encode()


def infer_binary(path: str, data: bytes = VALUES.tobytes(), size: str = "") -> bytes:
    entry = {"name": "INPUT0", "shape": [3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return post(text + data, path, f"Content-Type: {BINARY}{size or len(text)}")


def check_binary(answer: Answer) -> Any:
    """The JSON of an answer whose output is VALUES, as bytes."""
    assert answer.status == 200
    assert "inference-header-content-length" not in answer.headers
    content_type = answer.headers["content-type"]
    assert content_type.startswith(BINARY)
    length = int(content_type.removeprefix(BINARY))
    assert answer.body[length:] == VALUES.tobytes()
    return json.loads(answer.body[:length])


# ping


@pytest.mark.parametrize(
    ("mode", "live", "ready", "leaving", "stopping", "status"),
    [
        (PingMode.READY, True, True, False, False, 200),
        (PingMode.READY, True, False, False, False, 400),
        (PingMode.LIVE, True, False, False, False, 200),
        (PingMode.LIVE, True, False, True, False, 400),
        (PingMode.LIVE, True, False, False, True, 400),
        (PingMode.LIVE, False, False, False, False, 400),
    ],
)
def test_ping_tells_what_its_mode_says(
    mode: PingMode, live: bool, ready: bool, leaving: bool, stopping: bool, status: int
) -> None:
    with endpoint(settings=SagemakerSettings(ping_mode=mode)) as server:
        vars(server.engine.lifecycle).update(live=live, ready=ready, leaving=leaving, stopping=stopping)
        assert server.plain(get("/ping")) == (status, b"")
        assert server.ask(request("HEAD", "/ping"), "HEAD").status == status


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("POST", "/ping", 405, b'{"error":"Method Not Allowed"}'),
        ("GET", "/invocations", 405, b'{"error":"Method Not Allowed"}'),
        ("PUT", "/models", 400, b""),
        ("GET", "/other", 400, b""),
    ],
)
def test_what_is_no_call_is_refused(method: str, path: str, status: int, body: bytes) -> None:
    with endpoint() as server:
        assert server.plain(request(method, path)) == (status, body)


@pytest.mark.parametrize(
    ("category", "restricted", "open_path"),
    [("health", "/ping", "/models"), ("model-repository", "/models", "/ping")],
)
def test_restricted_calls_need_their_header(category: str, restricted: str, open_path: str) -> None:
    settings = SagemakerSettings(restrictions={category: Restriction("x-key", "secret", "X-Key")})
    with endpoint(settings=settings) as server:
        text = "This API is restricted, expecting header 'X-Key'"
        assert server.error(get(restricted)) == (403, text)
        assert server.error(get(restricted, "X-Key: wrong")) == (403, text)
        assert server.plain(get(restricted, "X-Key: secret"))[0] == 200
        assert server.plain(get(open_path))[0] == 200


def test_restricted_inference_covers_both_ways_to_invoke() -> None:
    settings = SagemakerSettings(restrictions={"inference": Restriction("x-key", "secret", "X-Key")})
    with endpoint(settings=settings) as server:
        for path in ("/invocations", f"/models/{KEY}/invoke"):
            assert server.error(post(infer_json(), path))[0] == 403


# invocations


def test_invocations_infer_on_the_default_model() -> None:
    models = [fake_model("a", answer=echo), fake_model("b", answer=echo)]
    with endpoint(*models, settings=SagemakerSettings(default_model="b")) as server:
        answer = server.ask(post(infer_json(id="7"), "/invocations", "Content-Type: application/json"))
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert json.loads(answer.body) == {
            "id": "7",
            "model_name": "b",
            "model_version": "1",
            "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [3], "data": VALUES.tolist()}],
        }


def test_tensors_go_in_and_out_as_bytes() -> None:
    with endpoint(fake_model("a", answer=echo)) as server:
        for _ in range(2):  # the second is answered from what is remembered of the first
            document = check_binary(server.ask(infer_binary("/invocations")))
            assert document["outputs"][0]["parameters"] == {"binary_data_size": 12}


def test_large_tensors_come_in_pieces() -> None:
    values = np.arange(100_000, dtype="<f4").tobytes()
    entry = {"name": "INPUT0", "shape": [100_000], "datatype": "FP32"}
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": len(values)}}]}).encode()
    model = fake_model("a", answer=echo)
    with endpoint(model) as server:
        answer = server.ask(post(head + values, "/invocations", f"Content-Type: {BINARY}{len(head)}"))
        assert answer.status == 200
        assert model.requests[0].inputs["INPUT0"].array.ctypes.data % 64 == 0  # no copy is needed
        wrong = post(head + values, "/invocations", f"Content-Type: {BINARY}x")
        assert server.error(wrong)[0] == 400


def test_a_raw_request_is_the_only_input() -> None:
    with endpoint(fake_model("a", answer=echo)) as server:
        check_binary(server.ask(post(VALUES.tobytes(), "/invocations", f"Content-Type: {BINARY}0")))


@pytest.mark.parametrize("path", ["/invocations", f"/models/{KEY}/invoke"])
def test_an_empty_body_is_no_request(path: str) -> None:
    with hosting(answer=echo) as server:
        status, message = server.error(post(b"", path, "Content-Type: application/json"))
        assert (status, message) == (
            400,
            "failed to parse the request JSON buffer: The document is empty. at 0",
        )


@pytest.mark.parametrize("content_type", ["application/octet-stream", "text/csv", "nonsense"])
def test_any_other_content_type_is_json(content_type: str) -> None:
    with endpoint(fake_model("a", answer=echo)) as server:
        assert server.ask(post(infer_json(), "/invocations", f"Content-Type: {content_type}")).status == 200


@pytest.mark.parametrize("path", ["/invocations", f"/models/{KEY}/invoke"])
@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        (f"{BINARY}x", "Unable to parse inference header size, got: x"),
        (f"{BINARY}2147483648", "Unable to parse inference header size"),
        (f"{BINARY}-1", "inference header size should be in range (0, 18), got: -1"),
        (f"{BINARY}19", "inference header size should be in range (0, 18), got: 19"),
        (f"json,{BINARY}1", "expect MIME type for binary data starts with"),
    ],
)
def test_a_wrong_header_size_is_400(path: str, content_type: str, text: str) -> None:
    with hosting(answer=echo) as server:
        status, message = server.error(post(b'{"inputs":[]}     ', path, f"Content-Type: {content_type}"))
        assert status == 400
        assert message.startswith(text)


def test_a_number_that_does_not_fit_is_refused_by_name() -> None:
    with endpoint(fake_model("m", answer=echo)) as served:
        body = infer_json().replace(b"0.25", b"1e39")
        assert served.error(post(body, "/invocations"))[0] == 400
        assert (
            "input 'INPUT0' of datatype FP32 has 1e+39 at position [2]"
            in served.error(post(body, "/invocations"))[1]
        )


def test_compression_is_not_spoken() -> None:
    with endpoint(fake_model("a", answer=echo)) as server:
        asked = post(infer_json(), "/invocations", "Content-Encoding: gzip", "Accept-Encoding: gzip")
        answer = server.ask(asked)
        assert answer.status == 200
        assert "content-encoding" not in answer.headers
        assert json.loads(answer.body)["model_name"] == "a"


def test_a_body_above_the_limit_is_refused() -> None:
    with endpoint(fake_model("a", answer=echo), settings=SagemakerSettings(max_input_size=10)) as server:
        status, text = server.error(post(infer_json(), "/invocations"))
        assert status == 400
        size = len(infer_json())
        assert text.startswith(
            f"Request JSON size of {size} bytes exceeds the maximum allowed value of 10 bytes. "
        )


def test_headers_become_parameters() -> None:
    model = fake_model("a", answer=echo)
    settings = SagemakerSettings(forward_pattern=compile_forward_pattern("^x-amzn"))
    with endpoint(model, settings=settings) as server:
        server.ask(post(infer_json(), "/invocations", "X-Amzn-SageMaker-Custom-Attributes: c"))
        assert model.requests[0].parameters == {"X-Amzn-SageMaker-Custom-Attributes": "c"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InternalError(OOM), 500),
        (NotFoundError("x"), 404),
        (UnavailableError("x"), 503),
        (OutOfMemoryError("x"), 503),
        (UnsupportedError("x"), 501),
        (InvalidArgumentError("x"), 400),
        (UnknownError("x"), 400),
        (AlreadyExistsError("x"), 400),
        (CancelledError("x"), 400),
    ],
)
def test_invocations_tell_errors_as_http_does(error: HalimedeError, status: int) -> None:
    with endpoint(fake_model("a", answer=answering(error))) as server:
        assert server.error(post(infer_json(), "/invocations")) == (status, error.message)


def test_a_default_model_that_nobody_knows_is_400() -> None:
    with endpoint(settings=SagemakerSettings(default_model="none")) as server:
        text = "Request for unknown model: 'none' is not found"
        assert server.error(post(infer_json(), "/invocations")) == (400, text)


def test_a_default_model_without_versions_is_404() -> None:
    with endpoint(settings=SagemakerSettings(default_model="known")) as server:
        assert server.error(post(infer_json(), "/invocations"))[0] == 404


def test_the_only_model_is_the_default() -> None:
    ensemble = fake_model("both", "a", "b", answer=echo)
    with endpoint(fake_model("a"), fake_model("b"), ensemble) as server:
        assert server.ask(post(infer_json(), "/invocations")).status == 200


def test_the_only_model_may_change() -> None:
    with endpoint(fake_model("a", answer=echo), fake_model("b", answer=echo)) as server:
        first, second = server.engine.models

        def serving(*models: Any) -> None:
            server.engine.models[:] = models
            for callback in server.engine.lifecycle.on_readiness:
                callback()

        for model in (first, second):
            server.served.loop.call(serving, model)
            answer = server.ask(post(infer_json(), "/invocations"))
            assert json.loads(answer.body)["model_name"] == model.name


@pytest.mark.parametrize(("names", "served"), [((), "none"), (("b", "a"), "'a', 'b'")])
def test_without_a_default_model_the_variable_is_named(names: tuple[str, ...], served: str) -> None:
    with endpoint(*map(fake_model, names)) as server:
        text = (
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME must name the model that /invocations is for; "
            f"served are: {served}"
        )
        assert server.error(post(infer_json(), "/invocations")) == (400, text)


def test_generate_answers_with_one_object() -> None:
    settings = SagemakerSettings(inference_type=InferenceType.GENERATE)
    with endpoint(fake_model("a", answer=echo), settings=settings) as server:
        answer = server.ask(post(b'{"INPUT0": [1.5, 2]}', "/invocations", "Content-Encoding: gzip"))
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert json.loads(answer.body) == {"model_name": "a", "model_version": "1", "OUTPUT0": [1.5, 2.0]}


def test_generate_stream_answers_with_events() -> None:
    def twice(request: InferRequest) -> None:
        for final in (False, True):
            request.respond(InferResponse({"OUTPUT0": request.inputs["INPUT0"]}), final)

    settings = SagemakerSettings(inference_type=InferenceType.GENERATE_STREAM)
    with endpoint(fake_model("a", decoupled=True, answer=twice), settings=settings) as server:
        answer = server.ask(post(b'{"INPUT0": 1.5}', "/invocations"))
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["transfer-encoding"] == "chunked"
        event = b'data: {"model_name":"a","model_version":"1","OUTPUT0":1.5}\n\n'
        assert (answer.status, answer.body) == (200, event * 2)


def test_a_decoupled_model_cannot_infer() -> None:
    text = "HTTP end point doesn't support models with decoupled transaction policy"
    with hosting(decoupled=True) as server:
        assert server.error(post(infer_json(), "/invocations")) == (501, text)
        assert server.error(post(infer_json(), f"/models/{KEY}/invoke")) == (400, text)


def test_a_client_that_leaves_cancels_its_request() -> None:
    model = fake_model("a")
    with endpoint(model) as server:
        with server.served.client() as client:
            client.send(post(infer_json(), "/invocations"))
            server.served.loop.run(eventually(lambda: bool(model.requests)))
        server.served.loop.run(eventually(lambda: model.requests[0].cancelled))


async def eventually(condition: Callable[[], bool]) -> None:
    """Return once the condition, which the loop of the server makes true, holds."""
    while not condition():  # noqa: ASYNC110 - nothing tells of what fakes have noted
        await asyncio.sleep(0)


# models


def test_no_models_are_an_empty_list() -> None:
    with endpoint() as server:
        answer = server.ask(get("/models"))
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert json.loads(answer.body) == {"models": []}


def test_models_are_listed_page_by_page() -> None:
    hosted = FakeHosted(*(HostedModel(key, f"/models/{key}") for key in "bac"))
    with endpoint(hosted=hosted) as server:
        first = json.loads(server.ask(get("/models?limit=2")).body)
        assert first["models"] == [
            {"modelName": "a", "modelUrl": "/models/a"},
            {"modelName": "b", "modelUrl": "/models/b"},
        ]
        second = json.loads(server.ask(get(f"/models?next_page_token={first['nextPageToken']}")).body)
        assert second == {"models": [{"modelName": "c", "modelUrl": "/models/c"}]}
        text = "limit '1000' is not a whole number from 1 to 100"
        assert server.error(get("/models/?limit=1000")) == (400, text)


def test_one_model_is_told() -> None:
    with hosting("m.tar.gz") as server:
        for path in (f"/models/{KEY}", f"/models/{KEY}/invoke"):
            document = json.loads(server.ask(get(path)).body)
            assert document == {"modelName": KEY, "modelUrl": f"/opt/ml/models/{KEY}"}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/models/x"), ("DELETE", "/models/x"), ("DELETE", "/models")]
)
def test_unknown_hash_is_404_without_body(method: str, path: str) -> None:
    with hosting() as server:
        assert server.plain(request(method, path)) == (404, b"")
        assert server.plain(post(b"", "/models/x/invoke")) == (404, b"")


def test_a_model_is_loaded_invoked_and_unloaded() -> None:
    with endpoint(fake_model(KEY, answer=echo)) as server:
        assert server.plain(post(LOAD, "/models")) == (200, b"")
        assert server.hosted.loads == [(KEY, URL, "")]
        assert json.loads(server.ask(post(infer_json(), f"/models/{KEY}/invoke")).body)["model_name"] == KEY
        assert server.plain(request("DELETE", f"/models/{KEY}")) == (200, b"")
        assert server.plain(post(infer_json(), f"/models/{KEY}/invoke")) == (404, b"")


@pytest.mark.parametrize(
    ("header", "logged"), [((), KEY), (("X-Amzn-SageMaker-Target-Model: a/m.tar.gz",), "a/m.tar.gz")]
)
def test_a_load_is_logged_with_its_target_model(
    caplog: pytest.LogCaptureFixture, header: tuple[str, ...], logged: str
) -> None:
    with caplog.at_level(logging.INFO, "halimede"), endpoint() as server:
        server.ask(post(LOAD, "/models", *header))
    assert f"Loading SageMaker TargetModel: {logged}" in [record.getMessage() for record in caplog.records]


def test_the_name_in_the_path_of_a_load_is_ignored() -> None:
    with endpoint() as server:
        assert server.plain(post(LOAD, "/models/other")) == (200, b"")
        assert server.hosted.loads == [(KEY, URL, "")]


@pytest.mark.parametrize("spelt", ["%ff", "m%00", "..%2F..%2Fm", "%2e%2e", "%ed%a0%80"])
def test_a_name_of_no_model_leads_nowhere(spelt: str) -> None:
    with hosting() as served:
        assert served.plain(request("GET", f"/models/{spelt}")) == (404, b"")
        assert served.plain(request("DELETE", f"/models/{spelt}")) == (404, b"")
        assert served.plain(post(infer_json(), f"/models/{spelt}/invoke")) == (404, b"")


def test_the_target_model_is_an_alias() -> None:
    alias = "company_a/m.tar.gz"
    with endpoint(fake_model(alias, answer=echo)) as server:
        server.ask(post(LOAD, "/models", f"X-Amzn-SageMaker-Target-Model: {alias}"))
        assert server.hosted.loads == [(KEY, URL, alias)]
        # the key alone counts afterwards, with the header or without it
        answer = server.ask(infer_binary(f"/models/{KEY}/invoke"))
        assert check_binary(answer)["model_name"] == alias
        other = post(infer_json(), f"/models/{KEY}/invoke", "X-Amzn-SageMaker-Target-Model: other")
        assert server.ask(other).status == 200
        assert server.plain(request("DELETE", f"/models/{KEY}")) == (200, b"")


def test_keys_may_have_any_characters() -> None:
    with hosting(key="company_a/größe 1%.tar.gz") as server:
        path = "/models/company_a%2Fgr%C3%B6%C3%9Fe%201%25.tar.gz"
        assert server.ask(get(path)).status == 200
        assert server.ask(post(infer_json(), f"{path}/invoke")).status == 200
        assert server.plain(request("DELETE", path)) == (200, b"")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AlreadyExistsError("'k' is loaded already"), 409),
        (OutOfMemoryError("the model needs 2 GiB, of which 1 GiB are free"), 507),
        (InvalidArgumentError(f"failed to load 'k': {OOM}"), 507),
        (InternalError("[Errno 28] No space left on device"), 507),
        (InvalidArgumentError("the archive is broken"), 400),
        (NotFoundError("there is nothing at '/opt/ml/models/k'"), 400),
        (UnavailableError("Server is stopping"), 400),
        (InternalError("failed to load 'BLOOM'"), 400),
        (InternalError(f"failed to load '{KEY}'"), 400),
    ],
)
def test_a_load_that_fails_says_why(error: HalimedeError, status: int) -> None:
    with endpoint() as server:
        server.hosted.error = error
        assert server.error(post(LOAD, "/models")) == (status, error.message)
        assert json.loads(server.ask(get("/models")).body) == {"models": []}


def test_the_name_of_a_model_is_no_shortage_of_memory() -> None:
    with endpoint() as server:
        server.hosted.error = InternalError("failed to load 'OOM'")
        body = json.dumps({"model_name": "OOM", "url": URL}).encode()
        assert server.error(post(body, "/models")) == (400, "failed to load 'OOM'")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model_name":"a"}', b'{"model_name":1,"url":"b"}'])
def test_a_wrong_request_to_load_is_400(body: bytes) -> None:
    with endpoint() as server:
        assert server.error(post(body, "/models"))[0] == 400
        assert not server.hosted.loads


def test_a_wrong_alias_is_400() -> None:
    with endpoint() as server:
        header = f"X-Amzn-SageMaker-Target-Model: {'a' * 1025}"
        assert server.error(post(LOAD, "/models", header))[0] == 400


def test_an_unload_that_fails_says_why() -> None:
    with hosting() as server:
        server.hosted.error = InternalError("it does not stop")
        assert server.error(request("DELETE", f"/models/{KEY}")) == (400, "it does not stop")


def test_what_nobody_foresaw_is_500(caplog: pytest.LogCaptureFixture) -> None:
    with endpoint() as server:
        server.hosted.gate = None  # type: ignore[assignment]  # what breaks it
        assert server.error(post(LOAD, "/models"))[0] == 500
    assert "POST /models failed" in caplog.text


def test_others_are_served_while_models_come_and_go() -> None:
    with hosting() as server, server.served.client() as loading, server.served.client() as unloading:
        server.hosted.gate.clear()
        loading.send(post(b'{"model_name":"other","url":"/o"}', "/models"))
        server.served.loop.run(eventually(lambda: bool(server.hosted.loads)))
        assert server.ask(post(infer_json(), f"/models/{KEY}/invoke")).status == 200
        assert server.plain(get("/models/other")) == (404, b"")
        unloading.send(request("DELETE", f"/models/{KEY}"))
        server.served.loop.run(eventually(lambda: bool(server.hosted.unloads)))
        assert server.ask(get("/models")).status == 200
        server.served.loop.call(server.hosted.gate.set)
        assert (loading.read().status, unloading.read().status) == (200, 200)
        assert list(server.hosted.models) == ["other"]


def test_a_client_that_leaves_stops_no_load() -> None:
    with endpoint() as server:
        server.hosted.gate.clear()
        client = server.served.client()
        client.send(post(LOAD, "/models"))
        server.served.loop.run(eventually(lambda: bool(server.hosted.loads)))
        client.vanish()
        server.served.loop.run(eventually(lambda: not server.served.connections))
        server.served.loop.call(server.hosted.gate.set)
        server.served.loop.run(eventually(lambda: KEY in server.hosted.models))


# errors of an invoked model


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InternalError(OOM), 507),
        (UnknownError("MemoryError"), 507),
        (UnavailableError("bad_alloc"), 507),
        (OutOfMemoryError("no room"), 507),
        (InternalError("model BLOOM has a ZOOM lens"), 400),
        (InternalError("model 'OOM/large.tar.gz' failed, as did 'OOM' and OOM-step"), 400),
        (InvalidArgumentError("unexpected inference input 'OOM'"), 400),
        (InternalError("x"), 400),
        (NotFoundError("x"), 400),
        (UnavailableError("x"), 400),
        (UnsupportedError("x"), 400),
        (CancelledError("x"), 400),
    ],
)
def test_an_error_of_an_invoked_model_is_400_or_507(error: HalimedeError, status: int) -> None:
    model = fake_model("OOM/large.tar.gz", "OOM-step", answer=answering(error))
    hosted = FakeHosted(HostedModel("OOM", "/opt/ml/models/OOM", model.name, model.name))
    with endpoint(model, hosted=hosted) as server:
        assert server.error(post(infer_json(), "/models/OOM/invoke")) == (status, error.message)


def test_a_model_that_cannot_take_the_request_is_told_too() -> None:
    with hosting() as server:
        status, text = server.error(post(b"{}", f"/models/{KEY}/invoke"))
        assert (status, "'inputs'" in text) == (400, True)


def test_a_hosted_model_without_ready_versions_is_400() -> None:
    hosted = FakeHosted(HostedModel(KEY, URL, "", KEY))
    with endpoint(hosted=hosted) as server:
        text = f"Request for unknown model: '{KEY}' is not found"
        assert server.error(post(infer_json(), f"/models/{KEY}/invoke")) == (400, text)


# models that are loaded when they are wanted


@pytest.mark.parametrize("path", ["/invocations", f"/models/{KEY}/invoke"])
def test_a_model_is_loaded_by_its_first_request(path: str) -> None:
    hosted = FakeHosted(HostedModel(KEY, URL, "", KEY))
    with endpoint(hosted=hosted, settings=SagemakerSettings(default_model=KEY)) as server:
        server.engine.missing[KEY] = fake_model(KEY, answer=echo)
        assert check_binary(server.ask(infer_binary(path)))["model_name"] == KEY
        assert server.engine.demands == [(KEY, -1, 60.0)]


@pytest.mark.parametrize(
    ("path", "error", "status"),
    [
        ("/invocations", OutOfMemoryError("no room"), 503),
        ("/invocations", NotFoundError("gone"), 404),
        (f"/models/{KEY}/invoke", OutOfMemoryError("no room"), 507),
        (f"/models/{KEY}/invoke", UnavailableError("not in time"), 400),
    ],
)
def test_a_model_that_is_not_loaded_in_time_says_why(path: str, error: HalimedeError, status: int) -> None:
    hosted = FakeHosted(HostedModel(KEY, URL, "", KEY))
    with endpoint(hosted=hosted, settings=SagemakerSettings(default_model=KEY)) as server:
        server.engine.missing[KEY] = error
        assert server.error(post(infer_json(), path)) == (status, error.message)


@pytest.mark.parametrize("leave", ["vanish", "half-close"])
def test_who_leaves_while_the_model_is_loaded_asks_nothing_of_it(leave: str) -> None:
    model = fake_model("a", answer=echo)
    with endpoint(settings=SagemakerSettings(default_model="a")) as server:
        server.engine.missing["a"] = model
        server.engine.demanded.clear()
        client = server.served.client()
        client.send(post(infer_json(), "/invocations"))
        server.served.loop.run(eventually(lambda: bool(server.engine.demands)))
        if leave == "vanish":
            client.vanish()
        else:
            client.socket.shutdown(socket.SHUT_WR)
            assert client.read().status == 400
        server.served.loop.run(eventually(lambda: not server.served.connections))
        client.__exit__()
        server.served.loop.call(server.engine.demanded.set)
        assert server.ask(post(infer_json(), "/invocations")).status == 200
        assert len(model.requests) == 1
