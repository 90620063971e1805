"""A server whose clients take its file descriptors says so, and answers health checks."""

import json
import resource
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.cli.echo import REQUEST, write_model
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

INFER = "/v2/models/echo/infer"


def limit_descriptors(server: ServerProcess, free: int) -> int:
    """Leave the server about so many descriptors before its reserve begins: the limit."""
    pid = server.process.pid
    highest = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir())
    limit = -(-4 * (highest + 1 + free) // 3)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def ask(connection: HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


def test_connections_beyond_the_descriptors_are_told_so_and_health_is_answered(tmp_path: Path) -> None:
    write_model(tmp_path)
    with start_server(tmp_path) as server:
        limit = limit_descriptors(server, free=4)
        text = (
            f"the server is out of file descriptors, of which this process may have {limit}; try again later"
        )
        with ExitStack() as held:
            for _ in range(10):
                connection = held.enter_context(closing(HTTPConnection(server.http, timeout=60)))
                assert ask(connection, "GET", "/v2/health/live")[0] == 200
            status, body = ask(connection, "POST", INFER, REQUEST)
            assert (status, json.loads(body)) == (503, {"error": text})
            with closing(HTTPConnection(server.http, timeout=60)) as another:
                assert ask(another, "GET", "/v2/health/ready")[0] == 200
            client = held.enter_context(grpcclient.InferenceServerClient(server.grpc))
            assert client.is_server_ready()
            with pytest.raises(InferenceServerException) as raised:
                client.get_server_metadata()
            assert raised.value.status() == "StatusCode.UNAVAILABLE"
            assert raised.value.message() == text

        def is_served() -> bool:
            with closing(HTTPConnection(server.http, timeout=60)) as one:
                return ask(one, "POST", INFER, REQUEST)[0] == 200

        wait_until(is_served)
