"""Requests byte by byte, for what clients of S3 never send."""

import hashlib
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.hosting.store.serving import ACCESS_KEY, SECRET, StoreHost


def ask(
    host: StoreHost, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[HTTPResponse, bytes]:
    """The response to a request, and its body."""
    connection = HTTPConnection("127.0.0.1", host.port, timeout=60)
    try:
        connection.request(method, target, body, dict(headers or {}))
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def signed(
    host: StoreHost, method: str, target: str, content: str, further: Mapping[str, str]
) -> dict[str, str]:
    """The headers of a request, signed.

    Args:
        host: for which host.
        method: such as PUT.
        target: path and query.
        content: what ``x-amz-content-sha256`` says.
        further: headers that are signed too.
    """
    request = AWSRequest(method, host.endpoint + quote(target, safe="/?=&%"), dict(further))
    request.context["payload_signing_enabled"] = True
    auth = S3SigV4Auth(Credentials(ACCESS_KEY, SECRET), "s3", "us-east-1")
    auth.payload = lambda _: content
    auth.add_auth(request)
    return dict(request.headers.items())


def sha256(data: bytes) -> str:
    """The hash of a body."""
    return hashlib.sha256(data).hexdigest()


def connect(host: StoreHost, head: str, body: bytes = b"") -> socket.socket:
    """A connection on which a head and some of a body have been sent."""
    connection = socket.create_connection(("127.0.0.1", host.port), timeout=60)
    connection.sendall(head.replace("\n", "\r\n").encode() + body)
    return connection
