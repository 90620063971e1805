"""Endpoints at addresses of the host's own machine, which a client elsewhere cannot reach by itself."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.api.services import Operation
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller
from halimede.hosting.notifications.addresses import LoopbackSubscriptions, OwnAddressError, is_own
from halimede.hosting.notifications.delivery import DeliverySettings, post
from halimede.http1.client import CallError
from tests.hosting.instances import fake_instance
from tests.hosting.notifications.serving import ACCOUNT, topic_host
from tests.support.certificates import make_certificate
from tests.support.waiting import wait_until

DONE = f"arn:aws:sns:us-east-1:{ACCOUNT}:done"

OWN = (
    "127.0.0.1",
    "127.8.9.10",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "169.254.169.254",
    "fe80::1",
    "fe80::1%lo",
    "224.0.0.1",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "localhost.localdomain",
)


@pytest.mark.parametrize("host", OWN)
def test_an_address_of_the_machine_alone_is_refused_in_any_notation(tmp_path: Path, host: str) -> None:
    assert is_own(host)
    with topic_host(tmp_path, loopback=LoopbackSubscriptions.NONE) as topics:
        topics.client().create_topic(Name="done")
        name = f"[{host}]" if ":" in host else host
        for protocol in ("http", "https"):
            code, message = topics.refused(
                "subscribe", TopicArn=DONE, Protocol=protocol, Endpoint=f"{protocol}://{name}:8001/x"
            )
            assert code == "InvalidParameter"
            assert "is an address of the host's own machine; --allow-loopback-subscriptions says" in message
        assert topics.client().list_subscriptions()["Subscriptions"] == []


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "10.0.0.1", "example.com", "2001:db8::1", "127.example.com", "x" * 300]
)
def test_other_addresses_and_names_are_not(host: str) -> None:
    assert not is_own(host)


def test_a_client_on_another_machine_subscribes_none(tmp_path: Path) -> None:
    with topic_host(tmp_path) as host, fake_instance() as endpoint:
        url = f"http://127.0.0.1:{endpoint.port}/x"
        subscribe = host.sns.service().operations["Subscribe"]
        host.client().create_topic(Name="done")
        request = {"TopicArn": DONE, "Protocol": "http", "Endpoint": url}
        with pytest.raises(ApiError, match="is an address of the host's own machine"):
            host.loop.run(_awaited(subscribe, request, Caller(is_local=False)))
        assert host.loop.run(_awaited(subscribe, request, Caller(is_local=True))) == {
            "SubscriptionArn": "pending confirmation"
        }
        wait_until(lambda: endpoint.seen)


async def _awaited(operation: Operation, request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
    return await operation(request, caller)


def test_a_name_that_stands_for_the_machine_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_instance() as endpoint:
        real = socket.getaddrinfo

        def resolve(host: str, *arguments: Any, **options: Any) -> Any:
            is_name = host.startswith("evil") and options.get("flags") != socket.AI_NUMERICHOST
            return real("127.0.0.1" if is_name else host, *arguments, **options)

        settings = DeliverySettings(attempts=50, pause_s=0.01)
        with topic_host(tmp_path, settings, loopback=LoopbackSubscriptions.NONE) as host:
            host.client().create_topic(Name="done")
            monkeypatch.setattr(socket, "getaddrinfo", resolve)
            assert not is_own("evil.example.")
            host.client().subscribe(
                TopicArn=DONE, Protocol="http", Endpoint=f"http://evil.example:{endpoint.port}/x"
            )
            wait_until(lambda: "is not delivered to" in caplog.text)
        assert "after 1 attempts: evil.example is an address of the host's own machine" in caplog.text
        assert endpoint.seen == []
        assert asyncio.run(post(f"http://evil.example:{endpoint.port}/x", {}, b"x", True)) == 200
        with pytest.raises(OwnAddressError):
            asyncio.run(post(f"https://evil.example:{endpoint.port}/x", {}, b"x", False))
        assert len(endpoint.seen) == 1


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1", *arguments, **options)

    with fake_instance() as endpoint:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        assert asyncio.run(post(f"http://name.example:{endpoint.port}/x", {}, b"x", True)) == 200
    assert endpoint.seen[0].headers["host"] == f"name.example:{endpoint.port}"
    assert asked.count("name.example") == 1


def test_an_endpoint_over_https_is_the_one_that_its_certificate_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path, "endpoint")
    paths = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"https://localhost:{server.server_port}/x?y=z"
        with pytest.raises(CallError, match="self-signed certificate"):
            asyncio.run(post(url, {}, b"x", True))

        trusting = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr("halimede.hosting.notifications.delivery._tls", lambda: trusting)
        assert asyncio.run(post(url, {}, b"x", True)) == 204
        with pytest.raises(
            CallError, match=r"not valid for .127\.1"
        ):  # the certificate is of another address
            asyncio.run(post(url.replace("localhost", "127.1"), {}, b"x", True))
        server.shutdown()
        thread.join(60)
    assert paths == ["/x?y=z"]
