"""A real server whose clients begin more than it has memory for, and end nothing."""

import json
import resource
import selectors
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.frontends.http.models import ECHO
from tests.frontends.http.serving import Client, post
from tests.support.server import ServerProcess, start_server

MIB = 1 << 20
BUDGET = 48 * MIB
SLACK = 32 * MIB
"""What two thousand connections take beside bodies, and what is read at once."""

REQUEST = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}]}
HEAD = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: 100\r\n"


@pytest.fixture(autouse=True)
def _open_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "echo" / "1").mkdir(parents=True)
    (tmp_path / "echo" / "config.pbtxt").write_text(ECHO)
    (tmp_path / "echo" / "labels.txt").write_text("cat")
    with start_server(tmp_path, f"--receive-memory-budget={BUDGET}") as running:
        small_requests_are_answered(running, 100)
        yield running


def resident(server: ServerProcess) -> int:
    """Bytes of the server in memory."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


def small_requests_are_answered(server: ServerProcess, count: int) -> None:
    whole = post(json.dumps(REQUEST).encode(), "/v2/models/echo/infer")
    with connect(server) as client:
        for _ in range(count):
            answer = client.ask(whole)
            assert answer.status == 200, answer.body
            assert json.loads(answer.body)["outputs"][0]["data"] == [1.0, 2.0, 3.0]
            client.send(whole[:-1])  # in two pieces
            assert client.ask(whole[-1:]).status == 200


def connect(server: ServerProcess) -> Client:
    return Client(int(server.http.rpartition(":")[2]))


@contextmanager
def connections(server: ServerProcess, count: int) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(server)) for _ in range(count)]


def send_what_is_taken(clients: list[Client], head: bytes, size: int) -> tuple[int, int]:
    """Send so many bytes of a body on each connection, while they are taken: the bytes taken, the clients refused."""
    left = {client.socket: head + bytes(size) for client in clients}
    total = sum(map(len, left.values()))
    sockets = {sock.fileno(): sock for sock in left}
    refused = 0
    with selectors.DefaultSelector() as selector:
        for sock in left:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while ready := selector.select(1):  # then none may send: each is done, refused, or held back
            for key, events in ready:
                sock = sockets[key.fd]
                if events & selectors.EVENT_READ:
                    refused += 1
                    selector.unregister(sock)
                    continue
                try:
                    left[sock] = left[sock][sock.send(left[sock][:MIB]) :]
                except BlockingIOError:
                    continue
                if not left[sock]:
                    selector.unregister(sock)
            if not selector.get_map():
                break
    for sock in left:
        sock.settimeout(60)
    return total - sum(map(len, left.values())), refused


def test_two_thousand_half_open_connections_and_slow_bodies_leave_memory_and_small_requests_alone(
    server: ServerProcess,
) -> None:
    before = resident(server)
    with (
        connections(server, 1000) as heads,
        connections(server, 1000) as small,
        connections(server, 40) as large,
    ):
        for client in heads:
            client.send(HEAD)
        for client in small:
            client.send(HEAD + b"Content-Length: 100000\r\n\r\n" + bytes(30_000))
        taken, _ = send_what_is_taken(large, HEAD + b"Content-Length: 40000000\r\n\r\n", 8 * MIB)
        assert taken > BUDGET // 2
        small_requests_are_answered(server, 200)
        assert resident(server) < before + BUDGET + SLACK
    # and when they are gone, there is room again
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 5 * MIB]}
    begun = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 20 * MIB}}]}).encode()
    length = f"Inference-Header-Content-Length: {len(begun)}"
    with connect(server) as client:
        assert client.ask(post(begun + bytes(20 * MIB), "/v2/models/echo/infer", length)).status == 200


def test_unfinished_bodies_that_could_never_fit_are_refused(server: ServerProcess) -> None:
    before = resident(server)
    with connections(server, 4) as clients:
        for client in clients:
            client.send(HEAD + b"Content-Length: 500000000\r\n\r\n" + bytes(1000))
            assert client.read().status == 413
    with connections(server, 4) as clients:
        send_what_is_taken(clients, HEAD + b"Transfer-Encoding: chunked\r\n\r\n1dcd6500\r\n", MIB)
        assert [client.read().status for client in clients] == [413] * 4
    assert resident(server) < before + BUDGET + SLACK


def test_unfinished_chunked_bodies_take_no_more_than_the_budget(server: ServerProcess) -> None:
    before = resident(server)
    with connections(server, 16) as clients:
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n1e00000\r\n"  # 30 MiB
        taken, refused = send_what_is_taken(clients, head, 20 * MIB)
        assert refused or taken < 16 * 20 * MIB
        small_requests_are_answered(server, 200)
        assert resident(server) < before + BUDGET + SLACK
