"""A server that is told to stop: it says so first, and answers for as long as clients need to hear of it."""

import contextlib
import http.client
import signal
import socket
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from halimede.frontends.grpc.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.cli.echo import EXECUTING, REQUEST, infer, two_requests, write_model, write_slow_model
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.front_ends

LONG = "--drain-delay-secs=600"
"""A delay that only a second signal ends in the time of a test."""


def begin_to_drain(server: ServerProcess) -> None:
    """Send SIGTERM, and return when the server knows."""
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("SIGTERM: not ready any more")


def hear(channel: grpc.Channel) -> HealthCheckResponse:
    """What the health service says."""
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    response: HealthCheckResponse = check(HealthCheckRequest(), timeout=30)
    return response


def test_draining_server_is_not_ready_but_answers_until_a_second_signal(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, LONG, "--allow-sagemaker=true") as server:
        begin_to_drain(server)
        assert server.get("/v2/health/ready") == (503, b'{"error":"Server exiting"}')
        assert server.get("/v2/health/live") == (200, b"")
        assert server.get("/v2/models/echo/ready") == (200, b"")
        assert server.get("/ping", server.sagemaker)[0] == 400
        assert infer(server) == 200
        assert server.get("/metrics", server.metrics)[0] == 200
        with grpcclient.InferenceServerClient(server.grpc) as client:
            assert not client.is_server_ready()
            assert client.is_server_live()
            tensor = grpcclient.InferInput("INPUT0", [2], "FP32")
            tensor.set_data_from_numpy(np.ones(2, np.float32))
            assert client.infer("echo", [tensor]).as_numpy("OUTPUT0").tolist() == [1, 1]
        with grpc.insecure_channel(server.grpc) as channel:
            assert hear(channel).status == HealthCheckResponse.NOT_SERVING
        assert server.stop() == 0
        assert "SIGTERM came again: the drain delay ends" in server.log


def test_watcher_of_the_health_service_is_told_when_the_server_drains(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, LONG) as server, grpc.insecure_channel(server.grpc) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )(HealthCheckRequest(), timeout=60)
        assert next(watch).status == HealthCheckResponse.SERVING
        begin_to_drain(server)
        assert next(watch).status == HealthCheckResponse.NOT_SERVING
        watch.cancel()


@pytest.mark.parametrize("before", [True, False], ids=["connected before", "connected since"])
def test_draining_server_asks_clients_to_leave_their_kept_connections(tmp_path: Path, before: bool) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, LONG) as server:
        connection = http.client.HTTPConnection(server.http, timeout=30)
        if before:
            connection.request("POST", "/v2/models/echo/infer", REQUEST)
            response = connection.getresponse()
            response.read()
            assert response.getheader("Connection") is None
        begin_to_drain(server)

        def asked_to_leave() -> bool:
            connection.request("POST", "/v2/models/echo/infer", REQUEST)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            return response.getheader("Connection") == "close"

        wait_until(asked_to_leave)  # a front end is told a little after the server knows
        connection.close()


def test_sockets_close_when_the_delay_is_over(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, "--drain-delay-secs=1") as server:
        host, _, port = server.http.partition(":")
        begin_to_drain(server)
        socket.create_connection((host, int(port)), timeout=30).close()
        assert server.process.wait(30) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=30)


def test_third_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 20_000)
    with start_server(tmp_path, LONG) as server, two_requests(server):
        begin_to_drain(server)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("the drain delay ends")
        assert server.stop() == 1
        assert "SIGTERM came again: exiting immediately" in server.log


def test_open_connections_are_counted_down_in_the_log_while_answers_are_waited_for(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 4000)
    with start_server(tmp_path, "--exit-timeout-secs=30") as server:
        with (
            grpc.insecure_channel(server.grpc) as channel,
            contextlib.closing(http.client.HTTPConnection(server.http, timeout=30)) as connection,
        ):
            assert hear(channel).status == HealthCheckResponse.SERVING
            connection.request("POST", "/v2/models/echo/infer", REQUEST)
            wait_until(lambda: EXECUTING in server.get("/metrics", server.metrics)[1].decode())
            server.process.send_signal(signal.SIGTERM)
            server.wait_for('"Timeout 30: Found 1 HTTP service connections"')
            server.wait_for('"Timeout 30: Found 1 gRPC service connections and inference handlers"')
            server.wait_for('"Timeout 29: Found 1 HTTP service connections"')
            assert connection.getresponse().status == 200
        assert server.process.wait(30) == 0
        assert "Timeout 30: Found 1 model versions that have in-flight inferences" in server.log
