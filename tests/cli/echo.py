"""The model `echo` of servers under test, and requests to it."""

import http.client
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server import ServerProcess

CONFIG = """
backend: "{backend}"
max_batch_size: 0
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {size} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {size} ] {output} }}
{rest}
"""
REQUEST = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}'
PENDING = 'nv_inference_pending_request_count{model="echo",version="1"} 1\n'
EXECUTING = 'halimede_inference_executing_request_count{model="echo",version="1"} 1\n'


def write_model(
    repository: Path,
    name: str = "echo",
    output: str = "",
    rest: str = "",
    backend: str = "identity",
    size: int = 2,
) -> Path:
    """A model that gives back its input, a vector of that size, or of any for -1; its directory."""
    directory = repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(
        CONFIG.format(backend=backend, output=output, rest=rest, size=size)
    )
    return directory


def write_slow_model(repository: Path, delay_ms: int) -> None:
    """A model that takes so long for each request."""
    write_model(
        repository, rest=f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }}'
    )


def write_held_model(repository: Path, name: str) -> Path:
    """A model that goes on loading until something is written to the pipe: its labels come through it."""
    directory = write_model(repository, name, output='label_filename: "labels.txt"')
    os.mkfifo(directory / "labels.txt")
    return directory / "labels.txt"


def infer(server: ServerProcess) -> int:
    """The status of one inference."""
    connection = http.client.HTTPConnection(server.http, timeout=30)
    try:
        connection.request("POST", "/v2/models/echo/infer", REQUEST)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def is_at_work(server: ServerProcess) -> bool:
    """Whether the model has a request under way, and another one waits."""
    metrics = server.get("/metrics", server.metrics)[1].decode()
    return PENDING in metrics and EXECUTING in metrics


@contextmanager
def two_requests(server: ServerProcess) -> Iterator[list[int]]:
    """Two requests in flight, one running and one waiting; their statuses once the block is over."""
    statuses: list[int] = []

    def send() -> None:
        try:
            statuses.append(infer(server))
        except (OSError, http.client.HTTPException):
            statuses.append(0)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: is_at_work(server), "a request that waits, and one that does not")
    yield statuses
    for thread in threads:
        thread.join(60)
