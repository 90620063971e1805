"""`halimede serve` attacked from a web page: what browsers send for it, as bytes on sockets."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.frontends.http.serving import Answer, Client
from tests.support.server import ServerProcess, start_server

pytestmark = pytest.mark.front_ends

EVIL = "http://evil.example"
APP = "http://localhost:3000"
CONFIG = '{"backend": "python", "input": [], "output": []}'
REBOUND = ("Host: evil.example:8000", "Origin: http://evil.example:8000", "Content-Type: text/plain")
"""What a browser sends for a page whose name its attacker's DNS has rebound to this machine."""
FOREIGN = ("Host: localhost:8000", f"Origin: {EVIL}", "Content-Type: text/plain")
"""What it sends for a page that asks another address than its own."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    flags = (
        "--model-control-mode=explicit",
        "--allow-sagemaker=true",
        "--allow-host=models.example",
        f"--allow-origin={APP}",
    )
    with start_server(repository, *flags, "--http-address=0.0.0.0", ready=False) as running:
        yield running


def ask(address: str, method: str, path: str, *headers: str, body: bytes = b"") -> Answer:
    lines = [f"{method} {path} HTTP/1.1", *headers, f"Content-Length: {len(body)}"]
    with Client(int(address.rpartition(":")[2])) as client:
        return client.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + body, method)


def code(witness: Path) -> bytes:
    """The body of a load whose model's code leaves a file behind."""
    program = base64.b64encode(f"import pathlib; pathlib.Path({str(witness)!r}).touch()".encode()).decode()
    return json.dumps({"parameters": {"config": CONFIG, "file:1/model.py": program}}).encode()


@pytest.mark.parametrize(("headers", "flag"), [(REBOUND, "--allow-host"), (FOREIGN, "--allow-origin")])
def test_code_from_a_web_page_is_not_run(
    server: ServerProcess, tmp_path: Path, headers: tuple[str, ...], flag: str
) -> None:
    witness = tmp_path / "witness"
    answer = ask(server.http, "POST", "/v2/repository/models/m/load", *headers, body=code(witness))
    assert (answer.status, witness.exists()) == (403, False)
    assert flag in json.loads(answer.body)["error"]


def test_the_same_code_from_a_program_on_this_machine_is_run(server: ServerProcess, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    ask(server.http, "POST", "/v2/repository/models/m/load", "Host: localhost", body=code(witness))
    assert witness.exists()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/m/unload"),
        ("POST", "/v2/logging"),
        ("POST", "/v2/models/m/infer"),
        ("POST", "/v2/models/m/generate"),
        ("POST", "/v2/models/m/generate_stream"),
        ("OPTIONS", "/v2/models/m/infer"),
    ],
)
@pytest.mark.parametrize("headers", [REBOUND, FOREIGN])
def test_a_web_page_may_call_nothing(
    server: ServerProcess, method: str, path: str, headers: tuple[str, ...]
) -> None:
    assert ask(server.http, method, path, *headers).status == 403


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/models"), ("DELETE", "/models/m"), ("POST", "/invocations")]
)
@pytest.mark.parametrize("headers", [REBOUND, FOREIGN])
def test_sagemakers_front_end_is_no_back_door(
    server: ServerProcess, method: str, path: str, headers: tuple[str, ...]
) -> None:
    assert ask(server.sagemaker, method, path, *headers).status == 403


def test_a_rebound_name_gets_to_read_nothing(server: ServerProcess) -> None:
    for address, path in [(server.http, "/v2"), (server.metrics, "/metrics"), (server.sagemaker, "/models")]:
        answer = ask(address, "GET", path, "Host: evil.example")
        assert (answer.status, b"--allow-host" in answer.body) == (403, True)
        assert ask(address, "GET", path, "Host: localhost").status == 200
        assert ask(address, "GET", path, "Host: models.example:80").status == 200
        assert ask(address, "GET", path, "Host: localhost", "Host: evil.example").status == 400


def test_an_allowed_page_asks_first_and_is_served(server: ServerProcess) -> None:
    page = ("Host: localhost:8000", f"Origin: {APP}")
    asked = ask(server.http, "OPTIONS", "/v2/repository/index", *page, "Access-Control-Request-Method: POST")
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, APP)
    answer = ask(server.http, "POST", "/v2/repository/index", *page)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, APP)


@pytest.mark.parametrize(("upload", "taken"), [("none", False), ("loopback", True), ("all", True)])
def test_the_flag_decides_over_grpc_too(tmp_path: Path, upload: str, taken: bool) -> None:
    witness = tmp_path / "witness"
    program = f"import pathlib; pathlib.Path({str(witness)!r}).touch()".encode()
    flags = ("--model-control-mode=explicit", f"--allow-model-code-upload={upload}")
    with start_server(tmp_path, *flags, ready=False) as server:
        client = grpcclient.InferenceServerClient(server.grpc)
        with pytest.raises(InferenceServerException) as failed:  # the model has no class
            client.load_model("m", config=CONFIG, files={"file:1/model.py": program})
        client.close()
    assert witness.exists() is taken
    assert (failed.value.status() == "StatusCode.PERMISSION_DENIED") is not taken
    assert ("--allow-model-code-upload=loopback" in str(failed.value)) is not taken


def test_a_secret_is_never_printed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    flags = (
        "--model-control-mode=explicit",
        "--http-address=0.0.0.0",
        "--http-restricted-api=model-repository:x-key=on-the-command-line",
        f"--http-restricted-api=statistics:x-key=file:{tmp_path}/key",
        "--grpc-restricted-protocol=model-repository:x-key=on-the-command-line",
        "--log-verbose=2",
    )
    with start_server(tmp_path, *flags, ready=False) as server:
        for path, key in [
            ("/v2/repository/index", "on-the-command-line"),
            ("/v2/models/stats", "from-a-file"),
        ]:
            method = "POST" if path.endswith("index") else "GET"
            assert ask(server.http, method, path, f"X-Key: {key}").status == 200
            assert ask(server.http, method, path, "X-Key: wrong").status == 403
        assert server.stop() == 0
        log = server.log
    assert "| model-repository:x-key=***," in log
    assert "statistics:x-key=file:" in log  # on the same line, or on the next if the path is long
    assert "on-the-command-line" not in log
    assert "from-a-file" not in log
    assert "everyone who reaches" not in log


def test_loading_that_is_open_to_a_network_is_warned_of_at_start(server: ServerProcess) -> None:
    assert server.log.count("everyone who reaches HTTP at 0.0.0.0:0 can load and unload models") == 1
