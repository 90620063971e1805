"""Connections and requests beyond what the flags allow: refused with a reason, while health and metrics answer."""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from halimede.frontends.grpc.health_pb2 import HealthCheckResponse
from tests.cli.echo import EXECUTING, PENDING, REQUEST, is_at_work, write_model, write_slow_model
from tests.cli.test_draining import hear
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.front_ends

LIMIT = 3


def ask(
    server: ServerProcess, method: str, path: str, body: bytes = b""
) -> tuple[int, str | None, str | None, bytes]:
    """Status, Retry-After, Connection and body of a request over a connection of its own."""
    connection = http.client.HTTPConnection(server.http, timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return (
            response.status,
            response.getheader("Retry-After"),
            response.getheader("Connection"),
            response.read(),
        )
    finally:
        connection.close()


def scraped(server: ServerProcess, name: str, labels: str = "") -> int:
    """The value of a metric."""
    text = server.get("/metrics", server.metrics)[1].decode()
    found = re.search(rf"^{name}{re.escape(labels)} (\d+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


@contextmanager
def held_connections(server: ServerProcess, count: int) -> Iterator[list[http.client.HTTPConnection]]:
    """So many connections on which a request was answered."""
    connections = []
    for _ in range(count):
        connection = http.client.HTTPConnection(server.http, timeout=30)
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        connections.append(connection)
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def test_connection_over_the_limit_is_told_so_and_health_is_answered(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, f"--http-max-connections={LIMIT}") as server:
        wait_until(lambda: scraped(server, "halimede_open_connections", '{protocol="http"}') == 0)
        with held_connections(server, LIMIT) as connections:
            status, retry_after, connection, body = ask(server, "POST", "/v2/models/echo/infer", REQUEST)
            assert (status, retry_after, connection) == (503, "1", "close")
            text = f"the server has {LIMIT} connections, as many as it may; try again later"
            assert json.loads(body) == {"error": text}
            assert ask(server, "GET", "/v2/health/ready")[::2] == (200, "close")
            assert ask(server, "GET", "/v2")[0] == 503
            wait_until(
                lambda: scraped(server, "halimede_refused_connections_total", '{protocol="http"}') == 3
            )
            assert scraped(server, "halimede_open_connections", '{protocol="http"}') == LIMIT
            for each in connections:  # those within the limit are served
                each.request("POST", "/v2/models/echo/infer", REQUEST)
                assert each.getresponse().status == 200
        wait_until(lambda: ask(server, "POST", "/v2/models/echo/infer", REQUEST)[0] == 200)


def test_many_idle_connections_over_the_limit_keep_health_checks_out_no_more_than_others(
    tmp_path: Path,
) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, "--http-max-connections=1") as server, ExitStack() as stack:
        stack.enter_context(held_connections(server, 1))
        for _ in range(300):
            idle = http.client.HTTPConnection(server.http, timeout=30)
            idle.connect()
            stack.callback(idle.close)
        wait_until(lambda: scraped(server, "halimede_refused_connections_total", '{protocol="http"}') >= 300)
        assert ask(server, "GET", "/v2/health/live")[0] == 200


def test_grpc_connection_over_the_limit_is_told_so_and_health_is_answered(tmp_path: Path) -> None:
    write_model(tmp_path)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with start_server(tmp_path, "--grpc-max-connections=1") as server:
        with grpc.insecure_channel(server.grpc, options) as first:
            assert hear(first).status == HealthCheckResponse.SERVING
            with grpcclient.InferenceServerClient(server.grpc, channel_args=options) as client:
                assert client.is_server_live()
                assert client.is_server_ready()
                for call in (client.get_server_metadata, lambda: client.infer("echo", [tensor()])):
                    with pytest.raises(
                        InferenceServerException, match="the server has 1 connections"
                    ) as error:
                        call()
                    assert error.value.status() == "StatusCode.UNAVAILABLE"
            wait_until(
                lambda: scraped(server, "halimede_refused_connections_total", '{protocol="grpc"}') >= 1
            )

        def served() -> bool:
            with grpcclient.InferenceServerClient(server.grpc, channel_args=options) as client:
                try:
                    return bool(client.infer("echo", [tensor()]).as_numpy("OUTPUT0").any())
                except InferenceServerException:
                    return False

        wait_until(served)


def write_bounded_model(repository: Path) -> None:
    """A slow model in whose queue one request may wait."""
    rest = (
        'parameters { key: "execute_delay_ms" value { string_value: "8000" } } '
        "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
    )
    directory = write_model(repository, rest=rest)
    config = directory / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 0", "max_batch_size: 1"))


def test_full_queue_tells_when_to_try_again(tmp_path: Path) -> None:
    write_bounded_model(tmp_path)
    batch = REQUEST.replace(b'"shape":[2]', b'"shape":[1,2]')
    with start_server(tmp_path) as server, two_in_flight(server, batch):
        status, retry_after, _, body = ask(server, "POST", "/v2/models/echo/infer", batch)
        assert (status, retry_after) == (503, "1")
        assert json.loads(body) == {"error": "[request id: <id_unknown>] Exceeds maximum queue size"}
        server.process.kill()


def test_request_of_any_protocol_waits_no_longer_than_its_timeout(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 8_000)
    with start_server(tmp_path) as server, two_in_flight(server):
        body = REQUEST.replace(b"{", b'{"parameters":{"timeout":50000},', 1)
        status, _, _, answer = ask(server, "POST", "/v2/models/echo/infer", body)
        assert (status, json.loads(answer)) == (503, {"error": "Request timeout expired"})
        with grpcclient.InferenceServerClient(server.grpc) as client:
            with pytest.raises(InferenceServerException, match="Request timeout expired") as error:
                client.infer("echo", [tensor()], timeout=50_000)
            assert error.value.status() == "StatusCode.UNAVAILABLE"
        server.process.kill()


def tensor() -> grpcclient.InferInput:
    """What the model takes."""
    tensor = grpcclient.InferInput("INPUT0", [2], "FP32")
    tensor.set_data_from_numpy(np.ones(2, np.float32))
    return tensor


@contextmanager
def two_in_flight(server: ServerProcess, body: bytes = REQUEST) -> Iterator[None]:
    """Two requests that are not answered before the end of the block."""
    connections = [http.client.HTTPConnection(server.http, timeout=60) for _ in range(2)]
    try:
        for (
            connection
        ) in connections:  # the second one waits in a queue with room for one, once the first has left it
            connection.request("POST", "/v2/models/echo/infer", body)
            wait_until(lambda: EXECUTING in server.get("/metrics", server.metrics)[1].decode())
        wait_until(lambda: is_at_work(server))
        yield
    finally:
        for connection in connections:
            connection.close()


def test_request_over_the_limit_of_those_in_flight_is_refused_over_each_protocol(tmp_path: Path) -> None:
    write_slow_model(tmp_path, 8_000)
    with start_server(tmp_path, "--max-inflight-requests=2", "--allow-sagemaker=true") as server:
        with two_in_flight(server):
            text = "the server has 2 requests in flight, as many as it may; try again later"
            for path in ("/v2/models/echo/infer", "/v2/models/echo/generate"):
                body = REQUEST if path.endswith("infer") else b'{"INPUT0": [1, 2]}'
                status, retry_after, _, answer = ask(server, "POST", path, body)
                assert (status, retry_after) == (503, "1")
                assert json.loads(answer) == {"error": f"[request id: <id_unknown>] {text}"}
            with grpcclient.InferenceServerClient(server.grpc) as client:
                with pytest.raises(InferenceServerException, match=text) as error:
                    client.infer("echo", [tensor()])
                assert error.value.status() == "StatusCode.UNAVAILABLE"
                assert client.is_server_ready()
            assert ask(server, "GET", "/v2/health/ready")[0] == 200
            assert scraped(server, "halimede_refused_requests_total") == 3
        # the clients have gone: the request that waited is cancelled, and its place free
        wait_until(lambda: PENDING not in server.get("/metrics", server.metrics)[1].decode())
        another = http.client.HTTPConnection(server.http, timeout=60)
        another.request("POST", "/v2/models/echo/infer", REQUEST)
        wait_until(lambda: PENDING in server.get("/metrics", server.metrics)[1].decode())
        another.close()
        server.process.kill()
