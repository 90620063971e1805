"""Buckets for tests: moto's S3 server, and a proxy in front of a server that misbehaves as a test says."""

import http.client
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def environment(**others: str) -> dict[str, str]:
    """The variables of this process, without those of clouds, and with credentials that test servers take."""
    clouds = ("AWS_", "GOOGLE_", "AZURE_", "STORAGE_", "TRITON_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(clouds)}
    return {**own, **CREDENTIALS, **others}


class Bucket:
    """A bucket of an S3 server.

    Attributes:
        endpoint: the server's URL.
        name: its name.
    """

    def __init__(self, endpoint: str, name: str, key: str = "test", secret: str = "test") -> None:
        self.endpoint = endpoint
        self.name = name
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )
        self.client.create_bucket(Bucket=name)

    def url(self, path: str = "repository", endpoint: str = "") -> str:
        """How `--model-repository` names a repository of it."""
        return f"s3://{endpoint or self.endpoint}/{self.name}/{path}".rstrip("/")

    def put(self, key: str, content: bytes | str = b"") -> str:
        """Put an object: its ETag."""
        content = content.encode() if isinstance(content, str) else content
        tag: str = self.client.put_object(Bucket=self.name, Key=key, Body=content)["ETag"]
        return tag.strip('"')

    def put_all(self, objects: Mapping[str, bytes | str], path: str = "repository") -> None:
        """Put objects below a repository."""
        for key, content in objects.items():
            self.put(f"{path}/{key}", content)

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=self.name, Key=key)


@contextmanager
def moto_server() -> Iterator[str]:
    """The URL of an S3 server that holds everything in this process's memory."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@dataclass
class Request:
    """A request that came to a proxy.

    Attributes:
        method: as ``GET``.
        path: without the query.
        query: without the question mark.
        headers: by name in lower case.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @property
    def lists(self) -> bool:
        """Whether it lists a bucket."""
        return "list-type=" in self.query


@dataclass
class Answer:
    """What a proxy answers.

    Attributes:
        status: its status.
        headers: its headers, by name in lower case.
        body: its body.
        sent: how many bytes of the body are sent before the connection is closed; None for all.
        gate: waited for, before any of the body is sent.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    sent: int | None = None
    gate: threading.Event | None = None

    @classmethod
    def error(cls, status: int, code: str, message: str) -> "Answer":
        """An error in S3's form."""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return cls(status, {"Content-Type": "application/xml"}, body.encode())


Fault = Callable[[Request, Answer], Answer | None]
"""What becomes of an answer; None closes the connection without one."""


@dataclass
class Proxy:
    """A server in front of another one.

    Attributes:
        url: where it listens.
        upstream: where requests go.
        fault: what becomes of answers.
        requests: those that came.
    """

    url: str
    upstream: str
    fault: Fault
    requests: list[Request] = field(default_factory=list)

    def gets(self, path: str = "") -> list[Request]:
        """The requests for objects whose key ends so."""
        return [each for each in self.requests if not each.lists and each.path.endswith(path)]


def unchanged(_request: Request, answer: Answer) -> Answer:
    """No fault."""
    return answer


@contextmanager
def proxy(upstream: str, fault: Fault = unchanged) -> Iterator[Proxy]:
    """A proxy in front of a server; its fault may be changed at any time."""
    shared: dict[str, Proxy] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        hop: ClassVar = {"connection", "transfer-encoding", "content-length", "keep-alive", "server", "date"}

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            self._serve()

        def do_HEAD(self) -> None:
            self._serve()

        def _serve(self) -> None:
            here = shared["proxy"]
            url = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, url.path, url.query, headers)
            here.requests.append(request)
            answer = here.fault(request, self._ask(here.upstream))
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.gate is not None:
                self.wfile.flush()
                answer.gate.wait(60)
            if self.command != "HEAD":
                with suppress(ConnectionError):  # whoever asked is gone
                    self.wfile.write(answer.body[: answer.sent])
            if answer.sent is not None:
                self.close_connection = True

        def _ask(self, upstream: str) -> Answer:
            connection = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=30)
            try:
                connection.request(self.command, self.path, headers=dict(self.headers.items()))
                response = connection.getresponse()
                headers = {name.lower(): value for name, value in response.headers.items()}
                kept = {name: value for name, value in headers.items() if name not in self.hop}
                return Answer(response.status, kept, response.read())
            except OSError:
                return Answer.error(502, "BadGateway", "the server behind the proxy is away")
            finally:
                connection.close()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    shared["proxy"] = Proxy(f"http://127.0.0.1:{server.server_port}", upstream, fault)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield shared["proxy"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
