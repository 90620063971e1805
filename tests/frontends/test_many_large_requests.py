"""A real server with little memory, whose clients send requests that become large all at once."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from halimede.frontends.grpc import kserve_pb2
from tests.frontends.http.models import ECHO
from tests.frontends.http.serving import Answer, Client, post
from tests.support.server import ServerProcess, start_server

MIB = 1 << 20
BUDGET = 64 * MIB
SLACK = 96 * MIB
"""One request that goes on in any case, threads' pieces, what the allocator keeps, and replies in sockets."""

CLIENTS = 24
COUNT = 4 * MIB  # numbers of a request: 8 MiB of JSON that become a tensor of 16 MiB, over 500 MiB in all

SMALL = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}]}
PATH = "/v2/models/echo/infer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("repository")
    (directory / "echo" / "1").mkdir(parents=True)
    (directory / "echo" / "config.pbtxt").write_text(ECHO)
    (directory / "echo" / "labels.txt").write_text("cat")
    with start_server(directory, f"--receive-memory-budget={BUDGET}") as running:
        yield running


def numbers() -> bytes:
    data = b"1," * (COUNT - 1) + b"1"
    head = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,%d],"data":[' % COUNT
    return head + data + b']}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}'


def memory(server: ServerProcess, line: str) -> int:
    """Bytes of the server in memory now (`VmRSS`), or at most since `reset` (`VmHWM`)."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith(line)) * 1024


def reset(server: ServerProcess) -> int:
    """Forget the peak: bytes in memory now."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    return memory(server, "VmRSS")


def connect(server: ServerProcess) -> Client:
    client = Client(int(server.http.rpartition(":")[2]))
    client.socket.settimeout(300)
    return client


def ask(server: ServerProcess, request: bytes) -> Answer:
    with connect(server) as client:
        return client.ask(request)


def over_http(request: bytes) -> Callable[[ServerProcess], str]:
    def send(server: ServerProcess) -> str:
        answer = ask(server, request)
        if answer.status == 503:
            assert "--receive-memory-budget" in json.loads(answer.body)["error"]
        return {200: "answered", 503: "refused"}.get(answer.status, f"{answer.status}: {answer.body[:500]!r}")

    return send


def over_grpc(compression: grpc.Compression) -> Callable[[ServerProcess], str]:
    request = kserve_pb2.ModelInferRequest(model_name="echo")
    tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, COUNT])
    tensor.contents.fp32_contents.extend([1.0] * COUNT)
    data = request.SerializeToString()

    def send(server: ServerProcess) -> str:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.grpc, options, compression=compression) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            try:
                infer(data, timeout=300)
            except grpc.RpcError as error:
                code, details = error.code(), str(error.details())
                refused = code is grpc.StatusCode.UNAVAILABLE and "--receive-memory-budget" in details
                return "refused" if refused else f"{code}: {details}"
        return "answered"

    return send


REQUESTS = {
    "compressed JSON": lambda: over_http(post(gzip.compress(numbers()), PATH, "Content-Encoding: gzip")),
    "JSON": lambda: over_http(post(numbers(), PATH)),
    "compressed messages": lambda: over_grpc(grpc.Compression.Gzip),
    "messages": lambda: over_grpc(grpc.Compression.NoCompression),
}


@pytest.mark.parametrize("make", REQUESTS.values(), ids=REQUESTS)
def test_many_at_once_keep_within_the_budget_and_small_requests_are_answered(
    server: ServerProcess, make: Callable[[], Callable[[ServerProcess], str]]
) -> None:
    send = make()
    small = post(json.dumps(SMALL).encode(), PATH)
    assert ask(server, small).status == 200
    assert send(server) == "answered"
    before = reset(server)
    with ThreadPoolExecutor(CLIENTS) as pool, connect(server) as neighbour:
        outcomes = [pool.submit(send, server) for _ in range(CLIENTS)]
        while not all(outcome.done() for outcome in outcomes):
            assert neighbour.ask(small).status == 200
        counts = Counter(outcome.result() for outcome in outcomes)
    assert set(counts) <= {"answered", "refused"}
    assert counts["answered"] >= 1
    assert memory(server, "VmHWM") < before + BUDGET + SLACK
    assert send(server) == "answered"


def test_what_could_never_fit_is_refused(server: ServerProcess) -> None:
    before = reset(server)
    content = numbers().replace(b"[1,%d]" % COUNT, b"[1,1]")[: -len(b"}")] + b',"padding":"%b"}' % bytes(
        60 * MIB
    )
    answer = ask(server, post(gzip.compress(content), PATH, "Content-Encoding: gzip"))
    assert answer.status == 400
    assert "--receive-memory-budget" in json.loads(answer.body)["error"]
    assert memory(server, "VmHWM") < before + BUDGET + SLACK


def test_clients_that_leave_leave_nothing_behind(server: ServerProcess) -> None:
    request = post(gzip.compress(numbers()), PATH, "Content-Encoding: gzip")
    before = reset(server)
    for _ in range(3 * CLIENTS):
        with connect(server) as client:
            client.send(request)
            client.vanish()
    assert ask(server, request).status == 200
    assert memory(server, "VmHWM") < before + BUDGET + SLACK


def test_front_ends_leave_large_compressed_bodies_to_the_engines_process(tmp_path: Path) -> None:
    (tmp_path / "echo" / "1").mkdir(parents=True)
    (tmp_path / "echo" / "config.pbtxt").write_text(ECHO.replace('label_filename: "labels.txt"', ""))
    request = post(gzip.compress(numbers()), PATH, "Content-Encoding: gzip")
    with start_server(tmp_path, "--front-ends=2", f"--receive-memory-budget={3 * BUDGET}") as server:
        with ThreadPoolExecutor(CLIENTS) as pool:
            statuses = {answer.status for answer in pool.map(lambda _: ask(server, request), range(CLIENTS))}
        assert 200 in statuses
        assert statuses <= {200, 503}
