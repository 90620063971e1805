"""A real server whose clients ask for large answers and read nothing."""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.frontends.http.serving import Client, post
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

MIB = 1 << 20
BUDGET = 64 * MIB
COUNT = 2 * MIB
"""Numbers of an answer, which has 8 MiB."""
PATH = "/v2/models/identity/infer"
CONFIG = (
    'backend: "identity" input { name: "IN" data_type: TYPE_FP32 dims: -1 } '
    'output { name: "OUT" data_type: TYPE_FP32 dims: -1 }'
)


@pytest.fixture(params=[1, 2], ids=["alone", "front ends"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "identity" / "1").mkdir(parents=True)
    (tmp_path / "identity" / "config.pbtxt").write_text(CONFIG)
    flags = f"--receive-memory-budget={BUDGET}", f"--front-ends={request.param}"
    with start_server(tmp_path, *flags) as running:
        yield running


def connect(server: ServerProcess) -> Client:
    client = Client(int(server.http.rpartition(":")[2]))
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    return client


def ask(count: int, *, binary: bool) -> bytes:
    """A request that is answered with as many numbers as it has."""
    output = {"name": "OUT", "parameters": {"binary_data": binary}}
    tensor = {
        "name": "IN",
        "datatype": "FP32",
        "shape": [count],
        "parameters": {"binary_data_size": 4 * count},
    }
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    return post(head + bytes(4 * count), PATH, f"Inference-Header-Content-Length: {len(head)}")


def begins(client: Client) -> int:
    """The status of an answer of which only the first line is read; 0 if the connection ends without one."""
    try:
        line = client.read_line()
    except ConnectionResetError:
        return 0
    return int(line.split()[1]) if line else 0


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
def test_answers_that_nobody_reads_are_bounded_and_others_are_served(
    server: ServerProcess, binary: bool
) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(16)]
        for client in silent:
            client.send(ask(COUNT, binary=binary))
        statuses = [begins(client) for client in silent]
        assert set(statuses) <= {0, 200, 503}
        assert statuses.count(200) < 10
        assert statuses.count(503) > 3
        small = stack.enter_context(connect(server)).ask(ask(4, binary=False))
        assert json.loads(small.body)["outputs"][0]["data"] == [0.0] * 4
        assert server.get("/v2/health/ready")[0] == 200
    wait_until(lambda: answered(server, binary=binary))


def answered(server: ServerProcess, *, binary: bool) -> bool:
    """Whether a client that reads gets its answer."""
    with connect(server) as client:
        answer = client.ask(ask(COUNT, binary=binary))
    assert answer.status in {200, 503}, answer.body
    if answer.status == 503:
        assert b"half of --receive-memory-budget" in answer.body
        assert int(answer.headers["retry-after"]) > 0
        return False
    numbers = (0.0,) * COUNT
    assert not binary or struct.unpack(f"<{COUNT}f", answer.body[-4 * COUNT :]) == numbers
    return True
