import base64
import gzip
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halimede
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.restrictions import Restriction, compile_forward_pattern
from tests.frontends.http.models import ECHO, STRINGS, ModelServer, serve_models, write_repository
from tests.frontends.http.serving import Answer, get, post

LIMIT = 100_000
FLOATS = np.array([[1.5, -2, 0.1]], "<f4")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ModelServer]:
    settings = HttpSettings("my server", LIMIT, forward_pattern=compile_forward_pattern("forward"))
    with serve_models(repository, settings, "echo", "strings", "half", "square") as running:
        yield running


def ask(server: ModelServer, request: bytes) -> Answer:
    with server.served.client() as client:
        return client.ask(request)


def ask_json(server: ModelServer, request: bytes, status: int = 200) -> Any:
    answered = ask(server, request)
    assert (answered.status, answered.headers["content-type"]) == (status, "application/json")
    return json.loads(answered.body)


def error(server: ModelServer, request: bytes, status: int) -> str:
    document = ask_json(server, request, status)
    assert list(document) == ["error"]
    return str(document["error"])


def infer(document: Any, *headers: str, data: bytes = b"", path: str = "/v2/models/echo/infer") -> bytes:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    if data:
        headers = (*headers, f"Inference-Header-Content-Length: {len(text)}")
    return post(text + data, path, *headers)


def floats(**more: Any) -> Any:
    entry = {"name": "INPUT0", "shape": [1, 3], "datatype": "FP32", "data": [1.5, -2, 0.1]}
    return {"inputs": [entry], **more}


BINARY_INPUT = {
    "name": "INPUT0", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12},
}  # fmt: skip


def binary(**more: Any) -> Any:
    return {"inputs": [BINARY_INPUT], **more}


# routing


@pytest.mark.parametrize("path", ["/", "/v2/", "/v2/models/echo/versions/abc", "/v2/models/echo/infer/"])
def test_unknown_path_is_404(server: ModelServer, path: str) -> None:
    assert error(server, get(path), 404) == "Not Found"


@pytest.mark.parametrize("path", ["/v2/models/echo/infer", "/v2/repository/index"])
def test_wrong_verb_is_405(server: ModelServer, path: str) -> None:
    assert error(server, get(path), 405) == "Method Not Allowed"


# the log


def log_settings(**changed: Any) -> dict[str, Any]:
    settings = {
        "log_file": "",
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "default",
    }
    return {**settings, **changed}


def change_log(server: ModelServer, document: Any, status: int = 200) -> Any:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return ask_json(server, post(text, "/v2/logging"), status)


def test_log_settings_are_read_and_changed(server: ModelServer) -> None:
    assert ask_json(server, get("/v2/logging")) == log_settings()
    changes = {"log_info": False, "log_verbose_level": 1, "log_format": "ISO8601"}
    assert change_log(server, changes) == log_settings(**changes)
    assert ask_json(server, get("/v2/logging")) == log_settings(**changes)
    back = {key: log_settings()[key] for key in changes}
    assert change_log(server, back) == log_settings()


@pytest.mark.parametrize(
    "document", [{}, {"unknown": 1}, {"log_info": None, "log_file": None}, b"[]", b"null", b"1"]
)
def test_log_settings_stay_where_nothing_is_changed(server: ModelServer, document: Any) -> None:
    assert change_log(server, document) == log_settings()


@pytest.mark.parametrize(
    ("document", "status", "text"),
    [
        ({"log_info": 1}, 400, "attempt to access JSON non-boolean as boolean"),
        ({"log_error": "true"}, 400, "attempt to access JSON non-boolean as boolean"),
        ({"log_verbose_level": -1}, 400, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"log_verbose_level": True}, 400, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"log_format": 1}, 400, "attempt to access JSON non-string as string"),
        ({"log_info": False, "log_format": "x"}, 503, "invalid argument for --log_format, got: x"),
        ({"log_file": "x"}, 501, "log file location can not be updated through network protocol"),
        ({"log_file": 1}, 501, "log file location can not be updated through network protocol"),
    ],
)
def test_a_wrong_log_setting_is_refused(server: ModelServer, document: Any, status: int, text: str) -> None:
    assert change_log(server, document, status) == {"error": text}
    assert ask_json(server, get("/v2/logging")) == log_settings()


# health and descriptions


def test_server_is_live_and_ready(server: ModelServer) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/echo/ready"):
        answered = ask(server, get(path))
        assert (answered.status, answered.body) == (200, b"")
        with server.served.client() as client:
            answered = client.ask(get(path).replace(b"GET", b"HEAD", 1), "HEAD")
            assert (answered.status, answered.body) == (200, b"")


def test_unready_server_answers_400(repository: Path) -> None:
    with serve_models(repository) as server:
        config = ECHO.replace('"identity"', '"no such backend"')
        document = {"parameters": {"config": json.dumps({"backend": "x", "name": "echo"})}}
        assert "no such backend" in config
        ask(server, post(json.dumps(document).encode(), "/v2/repository/models/echo/load"))
        answered = ask(server, get("/v2/health/ready"))
        assert (answered.status, answered.body) == (400, b"")
        assert ask(server, get("/v2/health/live")).status == 200


def test_stopping_server_answers_503(repository: Path) -> None:
    with serve_models(repository) as server:
        server.served.loop.run(server.engine.lifecycle.stop(1))
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert error(server, get(path), 503) == "Server exiting"
        assert error(server, post(b"", "/v2/repository/index"), 503) == "Server exiting"


def test_model_readiness_is_told(server: ModelServer) -> None:
    assert error(server, get("/v2/models/echo/versions/2/ready"), 400) == "Model version not ready"
    assert error(server, get("/v2/models/none/ready"), 400) == "Model version not ready"
    assert error(server, get("/v2/models/echo/versions/0/ready"), 400) == "Model version not ready"


def test_server_metadata(server: ModelServer) -> None:
    document = ask_json(server, get("/v2"))
    assert (document["name"], document["version"]) == ("my server", halimede.__version__)
    assert {"binary_tensor_data", "sequence", "trace"} <= set(document["extensions"])


def test_model_metadata(server: ModelServer) -> None:
    document = ask_json(server, get("/v2/models/echo"))
    assert document == {
        "name": "echo",
        "versions": ["1", "3"],
        "platform": "identity",
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1]}],
    }
    assert ask_json(server, get("/v2/models/echo/versions/1"))["versions"] == ["1"]


def test_model_config(server: ModelServer) -> None:
    document = ask_json(server, get("/v2/models/echo/versions/3/config"))
    assert (document["name"], document["max_batch_size"]) == ("echo", 8)


@pytest.mark.parametrize("call", ["", "/config", "/infer"])
def test_unknown_model_or_version_is_404(server: ModelServer, call: str) -> None:
    request = post(b"{}", "{}") if call == "/infer" else get("{}")

    def at(path: str) -> bytes:
        return request.replace(b"{}", path.encode() + call.encode(), 1)

    text = (
        "Request for unknown model: 'none' is not found. The loaded models are: echo, half, square, strings"
    )
    assert error(server, at("/v2/models/none"), 404) == text
    text = "Request for unknown model: 'ECHO' is not found. Did you mean 'echo'? The loaded models are: "
    assert error(server, at("/v2/models/ECHO"), 404).startswith(text)
    text = "Request for unknown model: 'never_loaded' is not found. It is in a repository, but not loaded"
    assert error(server, at("/v2/models/never_loaded"), 404) == text
    text = "Request for unknown model: 'echo' version 2 is not found. Its versions are: 1, 3"
    assert error(server, at("/v2/models/echo/versions/2"), 404) == text
    text = "Request for unknown model: 'echo' version 0 is not found. Its versions are: 1, 3"
    assert error(server, at("/v2/models/echo/versions/0"), 404) == text
    text = "version should be an integral value > 0"
    assert text in error(server, at("/v2/models/echo/versions/9223372036854775808"), 400)


def test_statistics_count_requests(server: ModelServer) -> None:
    def count(path: str) -> int:
        (model,) = ask_json(server, get(path))["model_stats"]
        return int(model["inference_stats"]["success"]["count"])

    before = count("/v2/models/echo/versions/1/stats")
    assert ask(server, infer(floats(), path="/v2/models/echo/versions/1/infer")).status == 200
    assert count("/v2/models/echo/versions/1/stats") == before + 1
    names = [model["name"] for model in ask_json(server, get("/v2/models/stats"))["model_stats"]]
    assert names == ["echo", "echo", "half", "square", "strings"]


def test_statistics_of_what_is_not_loaded_are_refused(server: ModelServer) -> None:
    text = "requested model 'none' is not available"
    assert error(server, get("/v2/models/none/stats"), 400) == text
    text = "requested model version is not available for model 'echo'"
    assert error(server, get("/v2/models/echo/versions/9/stats"), 400) == text


# repository


def test_index_lists_all_models_or_the_ready_ones(server: ModelServer) -> None:
    rows = ask_json(server, post(b"", "/v2/repository/index"))
    assert {"name": "echo", "version": "3", "state": "READY"} in rows
    assert {"name": "never_loaded"} in rows
    ready = ask_json(server, post(b'{"ready":true}', "/v2/repository/any/index"))
    assert {row["name"] for row in ready} == {"echo", "strings", "half", "square"}


@pytest.mark.parametrize("body", [b'{"ready":1}', b'{"ready":' + b"[" * 25_000 + b"]" * 25_000 + b"}"])
def test_index_needs_a_boolean(repository: Path, body: bytes) -> None:
    with serve_models(repository) as server:
        text = "Invalid value for 'ready': expected a boolean"
        assert error(server, post(body, "/v2/repository/index"), 400) == text


def test_models_are_loaded_and_unloaded(server: ModelServer) -> None:
    answered = ask(server, post(b"", "/v2/repository/models/slow/load"))
    assert (answered.status, answered.body) == (200, b"")
    assert ask(server, get("/v2/models/slow/ready")).status == 200
    body = b'{"parameters":{"unload_dependents":true}}'
    assert ask(server, post(body, "/v2/repository/models/slow/unload")).status == 200
    assert ask(server, post(b"", "/v2/repository/models/none/unload")).status == 200


@pytest.mark.parametrize("written", [json.dumps, dict])
def test_model_is_loaded_with_its_files_and_configuration(
    server: ModelServer, written: Callable[[dict[str, Any]], object]
) -> None:
    config = {"backend": "identity", "input": [{"name": "A", "data_type": "TYPE_INT8", "dims": [1]}],
              "output": [{"name": "B", "data_type": "TYPE_INT8", "dims": [1]}]}  # fmt: skip
    parameters = {"config": written(config), "file:1/any": base64.b64encode(b"content").decode()}
    body = json.dumps({"parameters": parameters}).encode()
    answered = ask(server, post(body, "/v2/repository/models/slow/load"))
    assert (answered.status, answered.body) == (200, b"")
    assert ask_json(server, get("/v2/models/slow"))["inputs"][0]["name"] == "A"
    assert ask(server, post(b"", "/v2/repository/models/slow/unload")).status == 200


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ({"other": "x"}, 500, "unexpected error on creating Triton parameter"),
        ({"config": 1}, 500, "attempt to access JSON non-string as string"),
        ({"config": "{}", "file:1/x": "%"}, 400, "'file:1/x' is not base64"),
        (
            {"file:1/x": ""},
            500,
            "failed to poll from model repository: Load parameter 'config' must be specified for model file override",
        ),
        ([], 400, "attempt to get members for non-object"),
    ],
)
def test_wrong_load_parameters_are_refused(
    server: ModelServer, parameters: object, status: int, text: str
) -> None:
    body = json.dumps({"parameters": parameters}).encode()
    assert text in error(server, post(body, "/v2/repository/models/echo/load"), status)


def test_wrong_repository_requests_are_refused(server: ModelServer) -> None:
    text = "'repository_name' specification is not supported"
    assert error(server, post(b"", "/v2/repository/r/models/echo/load"), 501) == text
    assert error(server, post(b"", "/v2/repository/r/models/echo/unload"), 501) == text
    body = b'{"parameters":{"unload_dependents":1}}'
    assert "expected a boolean" in error(server, post(body, "/v2/repository/models/echo/unload"), 400)
    body = b'{"parameters":{}}' + b" " * LIMIT
    text = "request JSON size of 100017 bytes exceeds the maximum allowed input size. It is 100000 bytes"
    assert text in error(server, post(body, "/v2/repository/models/echo/load"), 400)


# inference


def test_json_inference(server: ModelServer) -> None:
    document = ask_json(server, infer(floats(id="7")))
    assert list(document) == ["id", "model_name", "model_version", "parameters", "outputs"]
    assert (document["id"], document["model_name"], document["model_version"]) == ("7", "echo", "3")
    assert document["outputs"] == [
        {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.5, -2.0, 0.10000000149011612]}
    ]


def test_number_that_does_not_fit_is_refused_by_name(server: ModelServer) -> None:
    document = floats()
    document["inputs"][0]["data"] = [[1, 2, 1e39]]
    assert error(server, infer(document), 400).startswith(
        "value out of range: input 'INPUT0' of datatype FP32 has 1e+39 at position [0,2], expected a number from -3.4"
    )


def test_binary_inference(server: ModelServer) -> None:
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]
    answered = ask(server, infer(binary(outputs=outputs), data=FLOATS.tobytes()))
    assert answered.headers["content-type"] == "application/octet-stream"
    length = int(answered.headers["inference-header-content-length"])
    (output,) = json.loads(answered.body[:length])["outputs"]
    assert output == {
        "name": "OUTPUT0", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12},
    }  # fmt: skip
    assert answered.body[length:] == FLOATS.tobytes()


def test_large_binary_inference(server: ModelServer) -> None:
    values = np.arange(3_000_000, dtype="<f4")
    entry = {**BINARY_INPUT, "shape": [1, values.size], "parameters": {"binary_data_size": values.nbytes}}
    document = {"inputs": [entry], "parameters": {"binary_data_output": True}}
    answered = ask(server, infer(document, data=values.tobytes()))
    assert answered.body.endswith(values.tobytes())


def test_large_json_inference(server: ModelServer) -> None:
    values = np.random.default_rng(0).random(3000, np.float32)
    document = floats()
    document["inputs"][0] |= {"shape": [1, values.size], "data": values.tolist()}
    [output] = ask_json(server, infer(document))["outputs"]
    assert output["data"] == values.tolist()
    document["inputs"][0]["data"][2500] = 1e39
    assert "has 1e+39 at position [0,2500]" in error(server, infer(document), 400)


def test_named_version_is_used(server: ModelServer) -> None:
    document = ask_json(server, infer(floats(), path="/v2/models/echo/versions/1/infer"))
    assert document["model_version"] == "1"


def test_raw_inference(server: ModelServer) -> None:
    request = post(FLOATS.tobytes(), "/v2/models/echo/infer", "Inference-Header-Content-Length: 0")
    answered = ask(server, request)
    length = int(answered.headers["inference-header-content-length"])
    assert "id" not in json.loads(answered.body[:length])
    assert answered.body[length:] == FLOATS.tobytes()
    request = post(b"hello", "/v2/models/strings/infer", "Inference-Header-Content-Length: 0")
    assert ask(server, request).body.endswith(b"\5\0\0\0hello")


def test_many_strings_as_json(tmp_path: Path) -> None:
    model = tmp_path / "texts"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(STRINGS.replace("dims: [ 1 ]", "dims: [ -1 ]"))
    texts = [f"text {number}" for number in range(5000)]
    given = {"name": "INPUT0", "shape": [5000], "datatype": "BYTES", "data": texts}
    with serve_models(tmp_path, None, "texts") as server:
        path = "/v2/models/texts/infer"
        for last in ("", "ü", 'a "quoted" one'):
            texts[-1] = last
            [output] = ask_json(server, infer({"inputs": [given]}, path=path))["outputs"]
            assert output["data"] == texts
        given["shape"] = [5001]
        assert "expected 5001 string elements" in error(server, infer({"inputs": [given]}, path=path), 400)


def test_strings_as_json(server: ModelServer) -> None:
    entry = {"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["grüß"]}
    document = ask_json(server, infer({"inputs": [entry]}, path="/v2/models/strings/infer"))
    assert document["outputs"][0]["data"] == ["grüß"]


def test_nan_and_infinity_go_both_ways(server: ModelServer) -> None:
    text = json.dumps(floats()).replace("[1.5, -2, 0.1]", "[NaN, -Inf, Infinity]").encode()
    answered = ask(server, infer(text))
    assert answered.status == 200
    assert b'"data":[NaN,-Infinity,Infinity]' in answered.body


def test_classification(server: ModelServer) -> None:
    outputs = [{"name": "OUTPUT0", "parameters": {"classification": 2}}]
    document = ask_json(server, infer(floats(outputs=outputs)))
    assert document["outputs"] == [
        {"name": "OUTPUT0", "datatype": "BYTES", "shape": [1, 2], "data": ["1.500000:0:cat", "0.100000:2"]}
    ]


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        (infer(b"{"), 400, "failed to parse the request JSON buffer"),
        (
            infer(b"", "Inference-Header-Content-Length: 0", path="/v2/models/half/infer"),
            400,
            "[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'half'",
        ),
        (infer(b""), 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
        (infer(floats(outputs=[{"name": "X"}])), 400, "output 'X' for model 'echo'. The outputs are: OUTPUT0"),
        (infer(floats(id="a1", inputs=[])), 400, "[request id: a1] "),
        (infer(floats(), "Content-Encoding: br"), 501, "Unsupported compression type"),
        (infer(b"", "Content-Encoding: gzip"), 400, "nothing to be decompressed"),
        (infer(floats(), "Inference-Header-Content-Length: 9999"), 400, "inference header size should be in range"),
        (infer(floats(), "Triton_Forward: x"), 400, "Header 'Triton_Forward' is reserved for Triton usage"),
        (
            infer({"inputs": []}, path="/v2/models/square/infer"),
            501,
            "HTTP end point doesn't support models with decoupled transaction policy",
        ),
        (
            infer(
                {"inputs": [{"name": "INPUT0", "shape": [2], "datatype": "FP16",
                             "parameters": {"binary_data_size": 4}}]},
                data=bytes(4), path="/v2/models/half/infer",
            ),
            400,
            "sending FP16 data via JSON is not supported",
        ),
    ],
)  # fmt: skip
def test_wrong_inference_request_gets_its_error(
    server: ModelServer, request_bytes: bytes, status: int, text: str
) -> None:
    assert text in error(server, request_bytes, status)


def test_unknown_compression_names_the_known_ones(server: ModelServer) -> None:
    answered = ask(server, infer(floats(), "Content-Encoding: br"))
    assert answered.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("size", [3, 20_000])
@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("chunked", [False, True])
def test_compressed_request_and_response(
    server: ModelServer, size: int, encoding: str, compress: Any, chunked: bool
) -> None:
    values = np.random.default_rng(1).random((1, size), np.float32)
    entry = {**BINARY_INPUT, "shape": [1, size], "parameters": {"binary_data_size": values.nbytes}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    headers = (
        f"Content-Encoding: {encoding}",
        f"Accept-Encoding: {encoding}",
        f"Inference-Header-Content-Length: {len(text)}",
    )
    body = compress(text + values.tobytes())
    if chunked:
        pieces = [body[start : start + 1000] for start in range(0, len(body), 1000)]
        wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        head = ("POST /v2/models/echo/infer HTTP/1.1", "Host: test", "Transfer-Encoding: chunked", *headers)
        answered = ask(server, "\r\n".join(head).encode() + b"\r\n\r\n" + wire)
    else:
        answered = ask(server, post(body, "/v2/models/echo/infer", *headers))
    assert answered.headers["content-encoding"] == encoding
    body = zlib.decompress(answered.body, zlib.MAX_WBITS | 32)
    assert body[int(answered.headers["inference-header-content-length"]) :] == values.tobytes()


@pytest.mark.parametrize("size", [LIMIT + 1, 100 * LIMIT])
def test_bomb_is_refused(server: ModelServer, size: int) -> None:
    request = infer(gzip.compress(bytes(size)), "Content-Encoding: gzip")
    text = f"Decompressed data size exceeds the maximum allowed value of {LIMIT} bytes."
    assert text in error(server, request, 400)
    noise = gzip.compress(np.random.default_rng(1).bytes(LIMIT + 1))
    assert text in error(server, infer(noise, "Content-Encoding: gzip"), 400)


def test_error_is_never_compressed(server: ModelServer) -> None:
    assert "content-encoding" not in ask(server, infer(b"{", "Accept-Encoding: gzip")).headers


def test_client_that_leaves_cancels_its_queued_request(server: ModelServer) -> None:
    assert ask(server, post(b"", "/v2/repository/models/slow/load")).status == 200
    path = "/v2/models/slow/infer"
    with server.served.client() as runs:
        runs.send(infer(floats(), path=path))
        with server.served.client() as waits:
            waits.send(infer(floats(), path=path))
            model = server.engine.find("slow")
            for _ in range(1000):
                if server.served.loop.call(lambda: model.pending):
                    break
                threading.Event().wait(0.001)
        assert runs.read().status == 200
    for _ in range(1000):
        if model.statistics.fail.count:
            break
        threading.Event().wait(0.001)
    assert model.statistics.fail.count == 1
    assert model.statistics.success.count == 1
    assert ask(server, post(b"", "/v2/repository/models/slow/unload")).status == 200


# restrictions


def test_restricted_call_needs_its_header(repository: Path) -> None:
    settings = HttpSettings(restrictions={"inference": Restriction("key", "secret", "KEY")})
    with serve_models(repository, settings, "echo") as server:
        text = "This API is restricted, expecting header 'KEY'"
        assert error(server, infer(floats()), 403) == text
        assert error(server, infer(floats(), "Key: wrong"), 403) == text
        assert ask(server, infer(floats(), "Key: secret")).status == 200
        assert ask(server, get("/v2/health/live")).status == 200
        other_method = get(
            "/v2/models/echo/infer"
        )  # tritonserver does not tell either which methods there are
        assert error(server, other_method, 403) == text
