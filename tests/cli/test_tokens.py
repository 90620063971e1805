"""Bearer tokens as clients see them: curl, tritonclient over HTTP and gRPC, and Prometheus' way to the metrics."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.cli.echo import REQUEST
from tests.support.commands import call_text_command
from tests.support.server import FRONT_ENDS, ServerProcess, start_server

MISSING = "this call needs a bearer token: send the header 'Authorization: Bearer TOKEN'"
WRONG = "the bearer token is not valid"
READERS = FRONT_ENDS + 1 if FRONT_ENDS > 1 else 1
"""How many processes read a file of tokens: each front end, and the server's own."""


def made(name: str) -> tuple[str, str]:
    """A new token, and its line for the file."""
    done = call_text_command("token", name)
    assert done.returncode == 0
    return done.stderr.strip(), done.stdout


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    token, line = made("ci")
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text(line)
    return token, file


@pytest.fixture(scope="module")
def server(echo_repository: Path, token_file: tuple[str, Path]) -> Iterator[ServerProcess]:
    with start_server(echo_repository, f"--token-file={token_file[1]}", "--allow-sagemaker=true") as server:
        yield server


def place(address: str) -> tuple[str, int]:
    host, port = address.split(":")
    return host, int(port)


def curl(url: str, token: str = "", *arguments: str) -> tuple[str, str]:
    """Head and body of the answer."""
    headers = ["-H", f"Authorization: Bearer {token}"] if token else []
    done = subprocess.run(
        ["curl", "-sS", "-i", "--max-time", "20", *headers, *arguments, url],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    head, _, body = done.stdout.partition("\n\n")
    return head, body


def test_a_token_is_made_and_only_its_hash_is_kept(token_file: tuple[str, Path]) -> None:
    token, file = token_file
    name, algorithm, digest = file.read_text().strip().split(":")
    assert (name, algorithm, len(digest), len(token)) == ("ci", "sha256", 64, 43)
    assert token not in file.read_text()


@pytest.mark.parametrize("name", ["", "a:b", "a b", "#a"])
def test_a_name_that_no_line_could_hold_is_refused(name: str) -> None:
    done = call_text_command("token", name)
    assert done.returncode == 2
    assert "cannot name a token: a name has no colons and no spaces" in done.stderr
    assert not done.stdout


@pytest.mark.front_ends
def test_curl_infers_with_a_token(server: ServerProcess, token_file: tuple[str, Path]) -> None:
    head, body = curl(f"http://{server.http}/v2/models/echo/infer", token_file[0], "-d", REQUEST.decode())
    assert head.startswith("HTTP/1.1 200 OK")
    assert json.loads(body)["outputs"][0]["data"] == [1.0, 2.0]


@pytest.mark.front_ends
@pytest.mark.parametrize(
    ("token", "scheme", "text"), [("", "Bearer", MISSING), ("x", 'Bearer error="invalid_token"', WRONG)]
)
def test_calls_without_the_token_are_refused(
    server: ServerProcess, token: str, scheme: str, text: str
) -> None:
    for path in (
        "/v2",
        "/v2/models/echo",
        "/v2/models/echo/infer",
        "/v2/repository/index",
        "/v2/logging",
        "/none",
    ):
        head, body = curl(f"http://{server.http}{path}", token)
        assert head.startswith("HTTP/1.1 401 Unauthorized")
        assert f"WWW-Authenticate: {scheme}\n" in head + "\n"
        assert json.loads(body) == {"error": text}


@pytest.mark.front_ends
def test_health_needs_no_token(server: ServerProcess) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/echo/ready"):
        assert curl(f"http://{server.http}{path}")[0].startswith("HTTP/1.1 200 OK")
    assert curl(f"http://{server.sagemaker}/ping")[0].startswith("HTTP/1.1 200 OK")
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert client.is_server_ready()
        assert client.is_model_ready("echo")


@pytest.mark.front_ends
def test_metrics_and_sagemaker_need_the_token_too(
    server: ServerProcess, token_file: tuple[str, Path]
) -> None:
    assert curl(f"http://{server.metrics}/metrics")[0].startswith("HTTP/1.1 401")
    assert "nv_inference_count" in curl(f"http://{server.metrics}/metrics", token_file[0])[1]
    assert curl(f"http://{server.sagemaker}/models")[0].startswith("HTTP/1.1 401")
    assert curl(f"http://{server.sagemaker}/models", token_file[0])[0].startswith("HTTP/1.1 200")


@pytest.mark.front_ends
def test_tritonclient_over_http_sends_the_token(server: ServerProcess, token_file: tuple[str, Path]) -> None:
    with httpclient.InferenceServerClient(server.http) as client:
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="this call needs a bearer token"):
            client.get_model_metadata("echo")
        headers = {"Authorization": f"Bearer {token_file[0]}"}
        assert client.get_model_metadata("echo", headers=headers)["name"] == "echo"


@pytest.mark.front_ends
def test_tritonclient_over_grpc_sends_the_token(server: ServerProcess, token_file: tuple[str, Path]) -> None:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        for headers, text in (({}, MISSING), ({"authorization": "Bearer x"}, WRONG)):
            with pytest.raises(InferenceServerException) as refused:
                client.get_model_metadata("echo", headers=headers)
            assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
            assert refused.value.message() == text
        headers = {"authorization": f"Bearer {token_file[0]}"}
        assert client.get_model_metadata("echo", headers=headers).name == "echo"


@pytest.mark.front_ends
def test_streams_and_methods_that_there_are_not_need_the_token(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        for method in ("ModelStreamInfer", "NoSuchMethod"):
            with pytest.raises(grpc.RpcError) as refused:
                list(channel.stream_stream(f"/inference.GRPCInferenceService/{method}")(iter([]), timeout=20))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.front_ends
def test_a_large_body_is_refused_before_it_is_received(server: ServerProcess) -> None:
    with socket.create_connection(place(server.http), timeout=60) as connection:
        connection.sendall(
            b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nbegin"
        )
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401 Unauthorized\r\n")


@pytest.mark.front_ends
def test_groups_that_need_a_token_are_chosen(echo_repository: Path, token_file: tuple[str, Path]) -> None:
    flags = [f"--token-file={token_file[1]}", "--token-apis=model-repository,metrics"]
    with start_server(echo_repository, *flags) as server:
        assert curl(f"http://{server.http}/v2")[0].startswith("HTTP/1.1 200")
        assert curl(f"http://{server.http}/v2/repository/index", "", "-X", "POST")[0].startswith(
            "HTTP/1.1 401"
        )
        assert curl(f"http://{server.metrics}/metrics")[0].startswith("HTTP/1.1 401")


@pytest.mark.front_ends
def test_changed_tokens_count_at_once_also_on_connections_that_are_kept(
    echo_repository: Path, tmp_path: Path
) -> None:
    (old, old_line), (new, new_line) = made("old"), made("new")
    file = tmp_path / "tokens"
    file.write_text(old_line)
    with (
        start_server(echo_repository, f"--token-file={file}") as server,
        grpcclient.InferenceServerClient(server.grpc) as over_grpc,
        socket.create_connection(place(server.http), timeout=60) as over_http,
    ):
        request = f"GET /v2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {old}\r\n\r\n".encode()

        def status() -> bytes:
            over_http.sendall(request)
            return over_http.recv(1 << 16)[9:12]

        assert status() == b"200"
        assert status() == b"200"
        assert over_grpc.get_server_metadata(headers={"authorization": f"Bearer {old}"}).name == "triton"
        file.write_text(new_line)
        server.wait_for(f"'{file}' has changed: 1 tokens came, 1 went", times=READERS)
        assert status() == b"401"
        with pytest.raises(InferenceServerException, match="the bearer token is not valid"):
            over_grpc.get_server_metadata(headers={"authorization": f"Bearer {old}"})
        assert over_grpc.get_server_metadata(headers={"authorization": f"Bearer {new}"}).name == "triton"
        file.write_text(new)
        server.wait_for(f"Changed tokens are not used, those read before still are: '{file}', line 1 is not")
        assert new not in server.log
        assert over_grpc.get_server_metadata(headers={"authorization": f"Bearer {new}"}).name == "triton"


@pytest.mark.front_ends
def test_the_access_log_tells_what_was_refused(echo_repository: Path, token_file: tuple[str, Path]) -> None:
    with start_server(echo_repository, f"--token-file={token_file[1]}", "--access-log=json") as server:
        curl(f"http://{server.http}/v2/models/echo")
        server.wait_for('"path":"/v2/models/echo"')
        [line] = [line for line in server.log.splitlines() if '"path":"/v2/models/echo"' in line]
        assert json.loads(line)["status"] == 401
