"""A server whose clients take its file descriptors says so, and answers health checks."""

import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.cli.echo import REQUEST, write_model
from tests.python_models.support import processes
from tests.support.descriptors import limit_descriptors, shortage
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

INFER = "/v2/models/echo/infer"


def acceptors(server: ServerProcess) -> list[int]:
    """The processes that have the connections of clients."""
    pid = server.process.pid
    front_ends = [each for each, name in processes(pid).items() if name.startswith("halimede-front")]
    return front_ends or [pid]


def ask(connection: HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize("front_ends", [1, 2])
def test_connections_beyond_the_descriptors_are_told_so_and_health_is_answered(
    tmp_path: Path, front_ends: int
) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, f"--front-ends={front_ends}") as server:
        pids = acceptors(server)
        assert len(pids) == front_ends
        texts = {shortage(limit_descriptors(pid, free=4)) for pid in pids}
        with ExitStack() as held:
            for _ in range(10 * len(pids)):
                connection = held.enter_context(closing(HTTPConnection(server.http, timeout=60)))
                assert ask(connection, "GET", "/v2/health/live")[0] == 200
            status, body = ask(connection, "POST", INFER, REQUEST)
            assert status == 503
            assert json.loads(body)["error"] in texts
            with closing(HTTPConnection(server.http, timeout=60)) as another:
                assert ask(another, "GET", "/v2/health/ready")[0] == 200
            client = held.enter_context(grpcclient.InferenceServerClient(server.grpc))
            assert client.is_server_ready()
            with pytest.raises(InferenceServerException) as raised:
                client.get_server_metadata()
            assert raised.value.status() == "StatusCode.UNAVAILABLE"
            assert raised.value.message() in texts

        def is_served() -> bool:
            with closing(HTTPConnection(server.http, timeout=60)) as one:
                return ask(one, "POST", INFER, REQUEST)[0] == 200

        wait_until(is_served)


def test_clients_of_the_metrics_cannot_take_the_reserve_of_descriptors(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path, "--front-ends=1") as server, ExitStack() as held:
        limit = limit_descriptors(server.process.pid, free=4)
        assert server.metrics is not None
        for _ in range(limit):
            connection = held.enter_context(closing(HTTPConnection(server.metrics, timeout=60)))
            assert ask(connection, "GET", "/metrics")[0] == 200
        with closing(HTTPConnection(server.http, timeout=60)) as another:
            assert ask(another, "GET", "/v2/health/ready")[0] == 200
            status, body = ask(another, "POST", INFER, REQUEST)
            assert (status, json.loads(body)) == (503, {"error": shortage(limit)})
