"""Servers whose models are in buckets, and requests to them."""

import json
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.buckets import Answer, Bucket, environment
from tests.support.server import ServerProcess, running

IDENTITY = """backend: "identity"
input [{ name: "X", data_type: TYPE_FP32, dims: [-1] }]
output [{ name: "Y", data_type: TYPE_FP32, dims: [-1] }]
"""


@contextmanager
def serving(
    cache: Path, *flags: str, ready: bool = True, variables: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    command = [
        sys.executable, "-m", "halimede", "serve", f"--cloud-cache-directory={cache}", "--http-address=127.0.0.1",
        "--http-port=0", "--allow-grpc=false", "--allow-metrics=false", *flags,
    ]  # fmt: skip
    with running(command, 1, ready=ready, environment=environment(**(variables or {}))) as server:
        yield server


def new_bucket(store: str) -> Bucket:
    """A bucket with the models a and b."""
    bucket = Bucket(store, f"models-{secrets.token_hex(8)}")
    for name in "ab":
        bucket.put_all({f"{name}/config.pbtxt": IDENTITY, f"{name}/1/weights": name * 1000})
    return bucket


def post(server: ServerProcess, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of what a server answers."""
    data = json.dumps(body or {}).encode()
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", data, timeout=60) as response:
            return response.status, json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def load(server: ServerProcess, name: str, **parameters: str) -> tuple[int, Any]:
    return post(server, f"/v2/repository/models/{name}/load", {"parameters": parameters})


def infer(server: ServerProcess, name: str) -> list[float]:
    tensor = {"name": "X", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    status, answer = post(server, f"/v2/models/{name}/infer", {"inputs": [tensor]})
    assert status == 200, answer
    return list(answer["outputs"][0]["data"])


def index(server: ServerProcess) -> dict[str, str]:
    _, rows = post(server, "/v2/repository/index")
    return {row["name"]: row.get("state", "") for row in rows}


def away(_request: object, _answer: Answer) -> None:
    """The bucket answers nothing."""


def forbidden(_request: object, _answer: Answer) -> Answer:
    return Answer.error(403, "AccessDenied", "Access Denied")
