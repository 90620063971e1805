"""HTTP as bytes: requests that no client library would send go out as they are."""

import http.client
import json
import socket
from typing import Any

from tests.conformance.answers import Answer, document, flatten

HEADERS = ("content-type", "content-encoding", "allow", "inference-header-content-length")
WAIT_S = 30


def exchange(port: int, request: bytes, method: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (names in lower case) and body of the answer to those bytes.

    Raises:
        OSError: the connection was closed, or nothing came for a minute.
        http.client.HTTPException: what came is no answer.
    """
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        connection.sendall(request)
        with http.client.HTTPResponse(connection, method=method) as response:
            response.begin()
            body = response.read()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, body


def request_bytes(method: str, path: str, body: bytes, headers: tuple[tuple[str, str], ...]) -> bytes:
    """A request with `Host`, and with `Content-Length` unless the headers say how long the body is."""
    named = {name.lower() for name, _ in headers}
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers)]
    if not named & {"content-length", "transfer-encoding"} and (body or method == "POST"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def read_answer(status: int, headers: dict[str, str], body: bytes) -> Answer:
    """The answer as a table: JSON by its members, events one by one, binary tensors each in hexadecimal."""
    answer: Answer = {"status": status}
    answer.update({f"header {name}": headers[name] for name in HEADERS if name in headers})
    length = headers.get("inference-header-content-length", "")
    if length.isdigit():
        answer["header inference-header-content-length"] = "<length of the JSON>"
        return answer | tensors(body[: int(length)], body[int(length) :])
    if headers.get("content-type", "").startswith("text/event-stream"):
        for index, event in enumerate(body.split(b"\n\n")):
            answer |= document(event.removeprefix(b"data: "), f"event[{index}]") if event else {}
        return answer
    return answer | (document(body, "body") if body else {})


def tensors(header: bytes, rest: bytes) -> Answer:
    """A response with binary outputs: its JSON, and the bytes of each output under the output's name."""
    described: Any = json.loads(header)
    answer: Answer = dict(flatten(described, "body"))
    for output in described.get("outputs", []):
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            answer[f"bytes of {output['name']}"], rest = rest[:size].hex(), rest[size:]
    return answer | ({"bytes left over": rest.hex()} if rest else {})
