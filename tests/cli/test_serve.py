import http.client
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.cli.echo import infer, two_requests, write_held_model, write_model, write_slow_model
from tests.support.certificates import make_certificate
from tests.support.commands import call_text_command
from tests.support.server import run_command, start_server


@pytest.mark.front_ends
def test_a_server_serves_http_grpc_and_metrics(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, "--id=ours") as server:
        assert server.get("/v2/health/live") == (200, b"")
        assert infer(server) == 200
        with grpcclient.InferenceServerClient(server.grpc) as client:
            assert client.is_server_ready()
            assert client.get_server_metadata().name == "ours"
        status, body = server.get("/metrics", server.metrics)
        assert status == 200
        assert b'nv_inference_request_success{model="echo",version="1"} 1\n' in body
        assert server.get("/anything", server.metrics) == (200, b"")
        log = server.log
        assert log.index("Started GRPCInferenceService") < log.index("Started HTTPService")
        assert log.index("Started HTTPService") < log.index("Started Metrics Service")
        assert "| echo  | 1       | READY  |" in log
        assert "\"'echo' version 1 is READY after " in log
        assert server.stop() == 0


@pytest.mark.front_ends
def test_the_server_is_live_but_not_ready_while_models_load(tmp_path: Path) -> None:
    write_model(tmp_path)
    pipe = write_held_model(tmp_path, "held")
    with start_server(tmp_path, ready=False) as server:
        server.wait_for("loading: held:1")
        server.wait_for("'echo' version 1 is READY")
        assert server.get("/v2/health/live") == (200, b"")
        assert server.get("/v2/health/ready") == (400, b"")
        assert infer(server) == 200
        pipe.write_text("zero\none\n")
        server.wait_until_ready()


def test_a_model_that_fails_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_model(tmp_path, "broken", backend="nonsense")
    result = run_command(
        "serve", f"--model-repository={tmp_path}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"
    )
    assert result.returncode == 1
    told = result.stderr.splitlines()
    assert "failed to load all models" in told[-2]
    assert "failed to load 'broken' version 1: Invalid argument: unable to find backend library" in told[-1]
    assert "| broken |" in result.stdout
    assert "| echo   | 1       | READY" in result.stdout


def test_a_model_that_fails_may_be_left_out(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_model(tmp_path, "broken", backend="nonsense")
    with start_server(tmp_path, "--exit-on-error=false", "--strict-readiness=false") as server:
        assert infer(server) == 200
        assert server.stop() == 0


@pytest.mark.front_ends
def test_sigterm_lets_requests_finish(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 1000)
    with start_server(tmp_path) as server:
        health = http.client.HTTPConnection(server.http, timeout=60)
        health.request("GET", "/v2/health/ready")
        assert health.getresponse().read() == b""
        with two_requests(server) as statuses:
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("Waiting for in-flight requests to complete.")
            health.request("GET", "/v2/health/ready")
            response = health.getresponse()
            assert (response.status, response.read()) == (503, b'{"error":"Server exiting"}')
            host, port = server.http.split(":")
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((host, int(port)), 10)
        health.close()
        assert statuses == [200, 200]
        assert server.process.wait(20) == 0
        assert "successfully unloaded 'echo' version 1" in server.log


@pytest.mark.front_ends
def test_the_exit_timeout_ends_what_takes_too_long(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 60_000)
    with start_server(tmp_path, "--exit-timeout-secs=1") as server, two_requests(server):
        assert server.stop() == 1
        assert "Exit timeout expired. Exiting immediately." in server.log


@pytest.mark.front_ends
def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 60_000)
    with start_server(tmp_path) as server, two_requests(server):
        server.process.send_signal(signal.SIGINT)
        server.wait_for("Waiting for in-flight requests to complete.")
        assert server.stop() == 1
        assert "SIGTERM came again: exiting immediately" in server.log


@pytest.mark.front_ends
def test_a_signal_while_models_load_ends_the_server(tmp_path: Path) -> None:
    pipe = write_held_model(tmp_path, "echo")
    with start_server(tmp_path, ready=False) as server:
        server.wait_for("loading: echo:1")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("in-flight non-inference requests")
        pipe.write_text("zero\none\n")
        assert server.process.wait(20) == 0


@pytest.mark.front_ends
def test_an_idle_stream_does_not_hold_the_server_up(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path) as server, grpcclient.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: None)
        assert client.is_server_live()
        assert server.stop(10) == 0


def test_a_port_in_use_is_one_line_and_status_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_command(
            "serve", f"--model-repository={tmp_path}", "--http-address=127.0.0.1", f"--http-port={port}",
            "--grpc-port=0", "--metrics-port=0",
        )  # fmt: skip
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(
        rf"E\d{{4}} .*\] \"failed to start HTTP service: Unavailable - Socket '127\.0\.0\.1:{port}' already in use; "
        rf"choose another port with --http-port\"",
        line,
    )


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--model-repository=/nowhere"], "--model-repository: '/nowhere' does not exist"),
        (["--modle-repository=/x"], "unknown flag --modle-repository; the nearest is --model-repository"),
        (["--http-restricted-api=nonsense"], "--http-restricted-api option format is"),
        (
            ["--grpc-restricted-protocol=x:a=b"],
            "--grpc-restricted-protocol: unknown restricted protocol in place 1",
        ),
        (
            ["--allow-origin=app.example"],
            "--allow-origin: 'app.example' is not an origin, such as https://app",
        ),
        (["--allow-host=http://x/"], "--allow-host: 'http://x/' is not the name of a host"),
        (
            ["--http-header-forward-pattern=("],
            "--http-header-forward-pattern: header forward pattern '(' is not a",
        ),
        (["--log-file=/nowhere/log"], "--log-file: cannot write '/nowhere/log': No such file or directory"),
    ],
)
def test_a_wrong_start_is_one_line_and_status_2(tmp_path: Path, flags: list[str], line: str) -> None:
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    result = call_text_command("serve", f"--model-repository={tmp_path}", *ports, *flags)
    assert result.returncode == 2
    assert result.stderr.startswith("halimede: ")
    assert line in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Started" not in result.stdout


@pytest.mark.front_ends
def test_a_missing_repository_leaves_a_server_that_says_so_if_errors_do_not_end_it(tmp_path: Path) -> None:
    flags = ("--exit-on-error=false", "--model-control-mode=explicit")
    with start_server(tmp_path / "nowhere", *flags, ready=False) as server:
        server.wait_for(f"model repository '{tmp_path}/nowhere' cannot be read (No such file or directory)")
        assert b'"name":"triton"' in server.get("/v2")[1]
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert server.get(path) == (400, b"")
        refused = (503, b'{"error":"Server not ready"}')
        for path in ("m", "m/ready", "m/config", "m/stats", "stats"):
            assert server.get(f"/v2/models/{path}") == refused
        assert infer(server) == 503
        client = httpclient.InferenceServerClient(server.http)
        for call in (client.get_model_repository_index, client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match="Server not ready"):
                call(*(("m",) if call != client.get_model_repository_index else ()))
        client.close()


@pytest.mark.front_ends
def test_endpoints_can_be_closed(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, "--allow-grpc=false", "--allow-metrics=false") as server:
        assert server.grpc == server.metrics == ""
        assert infer(server) == 200


def test_explicit_mode_loads_what_it_is_told(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_model(tmp_path, "other")
    with (
        start_server(tmp_path, "--model-control-mode=explicit", "--load-model=echo") as server,
        httpclient.InferenceServerClient(server.http) as client,
    ):
        assert client.is_model_ready("echo")
        assert not client.is_model_ready("other")
        client.load_model("other")
        assert client.is_model_ready("other")


def test_remarks_about_flags_are_in_the_log(tmp_path: Path) -> None:
    with start_server(tmp_path, "--http-thread-count=2", "--strict-model-config=true") as server:
        assert '] "--http-thread-count has no effect here: one event loop' in server.log
        assert "'--strict-model-config' has been deprecated!" in server.log


def test_a_reader_of_the_log_that_goes_away_does_no_harm(tmp_path: Path) -> None:
    write_model(tmp_path)
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    command = [sys.executable, "-m", "halimede", "serve", f"--model-repository={tmp_path}", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"Started GRPCInferenceService" in process.stdout.readline()
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_grpc_over_tls_asks_clients_for_certificates(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    server_files, client_files = make_certificate(tmp_path, "server"), make_certificate(tmp_path, "client")
    flags = [
        "--grpc-use-ssl-mutual=true",
        f"--grpc-server-cert={server_files[0]}",
        f"--grpc-server-key={server_files[1]}",
        f"--grpc-root-cert={client_files[0]}",
    ]
    with start_server(tmp_path / "models", *flags) as server:
        options = {"ssl": True, "root_certificates": str(server_files[0])}
        with grpcclient.InferenceServerClient(
            server.grpc, private_key=str(client_files[1]), certificate_chain=str(client_files[0]), **options
        ) as client:
            assert client.is_server_live()
