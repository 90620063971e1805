"""Logging in to Azure without a key of the account: tokens of managed identities and of service principals."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from halimede.repository.cloud.failures import BucketError
from tests.repository.cloud.mirrors import mirror

TOKEN = "of-the-server"
EMPTY = b'<?xml version="1.0"?><EnumerationResults><Blobs></Blobs></EnumerationResults>'


@dataclass
class Azure:
    """A server that hands out tokens, and has a container that is empty for those who show one.

    Attributes:
        url: where it is.
        logins: path and parameters of each request for a token.
    """

    url: str = ""
    logins: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def azure() -> Iterator[Azure]:
    found = Azure()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path.endswith("/token"):
                self.log_in(url.path, url.query)
            elif self.headers["Authorization"] == f"Bearer {TOKEN}":
                self.answer(200, "application/xml", EMPTY)
            else:
                self.answer(403, "application/xml", b"")

        def do_POST(self) -> None:
            self.log_in(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode())

        def log_in(self, path: str, text: str) -> None:
            found.logins.append((path, {name: values[0] for name, values in parse_qs(text).items()}))
            lifetime = {"expires_in": 3600, "expires_on": "4102444800"}
            document = {"access_token": TOKEN, "token_type": "Bearer", "resource": "", **lifetime}
            self.answer(200, "application/json", json.dumps(document).encode())

        def answer(self, status: int, media_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
        server.shutdown()
        thread.join()


def test_a_managed_identity_logs_in(azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "managed_identity")
    monkeypatch.setenv("AZURE_STORAGE_CLIENT_ID", "serving")
    monkeypatch.setenv("AZURE_MSI_ENDPOINT", f"{azure.url}/identity/token")
    with mirror(f"as://{azure.url}/account/models", tmp_path) as found:
        found.check()
    [(path, asked)] = azure.logins
    assert path == "/identity/token"
    assert asked["client_id"] == "serving"


def test_a_service_principal_logs_in_at_its_authority(
    azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "default")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", azure.url)
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_CLIENT_ID", "serving")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "sesame")
    with mirror(f"as://{azure.url}/account/models", tmp_path) as found:
        found.check()
    [(path, asked)] = azure.logins
    assert path == "/tenant/oauth2/v2.0/token"
    assert (asked["client_id"], asked["client_secret"]) == ("serving", "sesame")


def test_without_a_login_only_what_is_public_can_be_read(azure: Azure, tmp_path: Path) -> None:
    with mirror(f"as://{azure.url}/account/models", tmp_path) as found, pytest.raises(BucketError) as caught:
        found.check()
    assert "Azure Blob Storage refuses it (403 " in str(caught.value)
    assert azure.logins == []
