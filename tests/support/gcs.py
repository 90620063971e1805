"""Google Cloud Storage for tests: the emulator gcp-storage-emulator, which speaks the JSON API, behind the XML API.

Clients that are not Google's own, obstore among them, use the XML API.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from gcp_storage_emulator.server import create_server

BUCKET = "models"


class Storage:
    """A running emulator with a bucket.

    Attributes:
        url: where it speaks the XML API.
        requests: the keys of the objects that were asked for.
    """

    def __init__(self, emulator: str) -> None:
        self.url = ""
        self.requests: list[str] = []
        self._emulator = emulator

    def put(self, key: str, content: bytes | str) -> None:
        """Put an object."""
        data = content.encode() if isinstance(content, str) else content
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}"
        self.ask("POST", path, data, {"Content-Type": "application/octet-stream"})

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.ask("DELETE", f"/storage/v1/b/{BUCKET}/o/{quote(key, safe='')}")

    def ask(
        self, method: str, path: str, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """What the emulator answers."""
        request = urllib.request.Request(self._emulator + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, dict(response.headers), response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()

    def listed(self, prefix: str) -> list[dict[str, Any]]:
        """The objects whose keys begin so."""
        _, _, body = self.ask("GET", f"/storage/v1/b/{BUCKET}/o?prefix={quote(prefix, safe='')}")
        items: list[dict[str, Any]] = json.loads(body).get("items", [])
        return items


@contextmanager
def gcs_emulator() -> Iterator[Storage]:
    """Storage that is held in this process's memory."""
    emulator = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    emulator.start()
    storage = Storage(f"http://127.0.0.1:{emulator._api._httpd.server_port}")  # noqa: SLF001 - it does not tell its port

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            bucket, _, key = unquote(url.path).lstrip("/").partition("/")
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if bucket != BUCKET:
                self._answer(404, b"<Error><Code>NoSuchBucket</Code><Message>no bucket</Message></Error>")
            elif "list-type" in query:
                self._answer(200, _listing(storage, query.get("prefix", ""), query.get("delimiter", "")))
            else:
                storage.requests.append(key)
                self._object(key)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _object(self, key: str) -> None:
            found = [each for each in storage.listed(key) if each["name"] == key]
            if not found:
                self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>no object</Message></Error>")
                return
            tag = f'"{found[0]["etag"]}"'
            if self.headers.get("If-Match", tag) != tag:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            span = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
            status, headers, body = storage.ask("GET", f"/{BUCKET}/{quote(key)}", headers=span)
            kept = {name: value for name, value in headers.items() if name == "Content-Range"}
            self._answer(
                status, body, {**kept, "ETag": tag, "Last-Modified": "Mon, 23 Nov 2026 00:00:00 GMT"}
            )

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    storage.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        emulator.stop()


def _listing(storage: Storage, prefix: str, delimiter: str) -> bytes:
    objects, prefixes = [], set()
    for each in storage.listed(prefix):
        below, found, _ = each["name"][len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if found:
            prefixes.add(f"{prefix}{below}{delimiter}")
        else:
            objects.append(each)
    contents = "".join(
        f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size><ETag>&quot;{each['etag']}&quot;</ETag>"
        f"<LastModified>{each['updated']}</LastModified></Contents>"
        for each in objects
    )
    common = "".join(
        f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(prefixes)
    )
    return f"<ListBucketResult>{contents}{common}</ListBucketResult>".encode()
