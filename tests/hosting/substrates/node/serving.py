"""A server of archives that fails as it is told to, and model archives."""

import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from halimede.hosting.store.source import Offer

CONFIG = b'backend: "identity"'
MIB = 1 << 20


def archive(size: int = 0, *, zeros: bool = False) -> bytes:
    """A model archive, not compressed, with so many bytes of weights, which are random or zeros."""
    weights = bytes(size) if zeros else os.urandom(size)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in (("simple/config.pbtxt", CONFIG), ("simple/1/weights", weights)):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return data.getvalue()


@dataclass
class Asked:
    """A request.

    Attributes:
        path: of its URL.
        range: the header, or "".
        match: ``If-Match``, or "".
        sent: how many bytes of the archive it was sent.
    """

    path: str
    range: str
    match: str
    sent: int = 0


class Handler(BaseHTTPRequestHandler):
    """Answers with an archive, or as the server's next fault says."""

    server: "ArchiveServer"

    def do_GET(self) -> None:
        """Answer."""
        asked = Asked(self.path, self.headers.get("Range", ""), self.headers.get("If-Match", ""))
        server = self.server
        with server.guard:
            server.asked.append(asked)
            fault = server.faults.pop(0) if server.faults else None
        if fault is not None:
            fault(self, asked)
        else:
            self.serve(asked)

    def serve(
        self,
        asked: Asked,
        *,
        upto: int | None = None,
        etag: str = "",
        length: int | None = None,
        ranges: bool = True,
        match: bool = True,
    ) -> None:
        """Send an archive.

        Args:
            asked: the request.
            upto: break off after so many bytes.
            etag: the ETag that is told, if it is another than the right one.
            length: the Content-Length that is told, if it is another than the right one.
            ranges: whether ranges are understood.
            match: whether If-Match is.
        """
        data = self.server.archives.get(self.path)
        if data is None:
            self.refuse(404, "no such archive")
            return
        right = self.server.etag
        if match and asked.match not in ("", f'"{right}"'):
            self.refuse(412, f"the ETag is {right}")
            return
        begin = int(asked.range.removeprefix("bytes=").rstrip("-")) if asked.range and ranges else 0
        self.send_response(206 if asked.range and ranges else 200)
        self.send_header("ETag", f'"{etag or right}"')
        if asked.range and ranges:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin if length is None else length))
        self.end_headers()
        with suppress(OSError):
            for first in range(begin, len(data) if upto is None else upto, 1 << 16):
                piece = data[first : min(first + (1 << 16), upto or len(data))]
                self.server.gate.wait()
                self.wfile.write(piece)
                asked.sent += len(piece)

    def refuse(self, status: int, text: str) -> None:
        """Answer with an error."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


Fault = Callable[[Handler, Asked], None]


class ArchiveServer(ThreadingHTTPServer):
    """A server of archives.

    Attributes:
        archives: path → bytes.
        etag: that of all of them.
        faults: what the next requests get instead.
        asked: the requests so far.
        gate: nothing is sent while it is not set.
        guard: held where lists change.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.archives: dict[str, bytes] = {}
        self.etag = "v1"
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.gate = threading.Event()
        self.gate.set()
        self.guard = threading.Lock()

    def offer(self, data: bytes, name: str = "model", **changes: object) -> Offer:
        """An archive that is served from now on."""
        path = f"/{name}"
        self.archives[path] = data
        members = {
            "url": f"http://127.0.0.1:{self.server_port}{path}",
            "size": len(data),
            "etag": self.etag,
            "name": f"s3://models/{name}.tar.gz",
        }
        return Offer(**(members | changes))  # type: ignore[arg-type]

    @property
    def sent(self) -> int:
        """Bytes of archives that were sent."""
        return sum(asked.sent for asked in self.asked)


@contextmanager
def archive_server() -> Iterator[ArchiveServer]:
    """A server while the block runs."""
    with ArchiveServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.gate.set()
            server.shutdown()
            thread.join()
