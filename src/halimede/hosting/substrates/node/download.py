"""An archive fetched over HTTP into a file, from where an earlier attempt has ended."""

import errno
import os
import re
import socket
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from halimede.hosting.errors import ApiError
from halimede.hosting.store.places import failed, location_of
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.cancellation import Cancellation, ExpiredError

Progress = Callable[[int, int], None]
"""Called with how many bytes there are, and of how many."""

_PIECE_BYTES = 1 << 20
_SILENCE_S = 30.0
"""A connection on which nothing comes for so long is given up."""

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_TEXT_BYTES = 1 << 12
_SHOWN = 300
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_AGAIN = (408, 425, 429)


class _ChangedError(Exception):
    """What the server sends is not what was offered; the text says how that shows."""


class _UnavailableError(Exception):
    """The server does not give it now."""


def download(offer: Offer, path: Path, cancellation: Cancellation, progress: Progress) -> None:
    """Fetch an archive into a file, which may have the beginning of it. Blocks.

    Connections that break and servers that are overloaded are tried again, after pauses that grow.

    Raises:
        ApiError: it is not there any more, may not be read, or has changed; or the disk is full.
        StoppedError: nobody wants it any more.
        ExpiredError: it took too long. What has been fetched is kept then, and after a stop.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_failed(path, error) from error
    try:
        _Download(offer, path, file, cancellation, progress).run()
    finally:
        os.close(file)


class _Download:
    def __init__(
        self, offer: Offer, path: Path, file: int, cancellation: Cancellation, progress: Progress
    ) -> None:
        self._offer = offer
        self._location = location_of(offer.name, "")
        self._path = path
        self._file = file
        self._cancellation = cancellation
        self._progress = progress
        self._have = os.fstat(file).st_size

    def run(self) -> None:
        changed = False
        pause = _FIRST_PAUSE_S
        while self._have != self._offer.size:
            before = self._have
            try:
                self._cancellation.check()
                self._attempt()
            except _ChangedError as error:
                self._begin_again()
                if changed:
                    raise failed(
                        self._location, f"it is not what was offered: {error}", "Try again"
                    ) from None
                changed = True
            except (OSError, HTTPException, _UnavailableError) as error:
                self._cancellation.check()
                pause = _FIRST_PAUSE_S if self._have > before else min(2 * pause, _LONGEST_PAUSE_S)
                try:
                    self._cancellation.pause(pause)
                except ExpiredError:
                    raise ExpiredError(str(error) or type(error).__name__) from None
        self._progress(self._have, self._offer.size)

    def _attempt(self) -> None:
        """Fetch what is lacking, as far as one connection brings it."""
        if self._have > self._offer.size:
            raise _ChangedError(f"there are {self._have:,} bytes, where {self._offer.size:,} were offered")
        url = urlsplit(self._offer.url)
        target = f"{url.path}?{url.query}" if url.query else url.path
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        limit = max(0.1, min(_SILENCE_S, self._cancellation.remaining_s))
        connection = kind(url.hostname or "", url.port, timeout=limit)
        try:
            connection.connect()
            opened = connection.sock

            def interrupt() -> None:
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

            with self._cancellation.interrupting(interrupt):
                connection.request("GET", target, headers=self._headers())
                with connection.getresponse() as response:
                    self._receive(response)
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if self._offer.etag:
            headers["If-Match"] = f'"{self._offer.etag}"'
        if self._have:
            headers["Range"] = f"bytes={self._have}-"
        return headers

    def _receive(self, response: HTTPResponse) -> None:
        self._check_status(response)
        etag = response.headers.get("ETag", "").removeprefix("W/").strip('"')
        if etag and self._offer.etag and etag != self._offer.etag:
            raise _ChangedError(f"its ETag is '{etag}', where '{self._offer.etag}' was offered")
        if response.status == 200:
            self._begin_again()
        else:
            self._check_range(response.headers.get("Content-Range", ""))
        lacking = self._offer.size - self._have
        if response.length is not None and response.length != lacking:
            raise _ChangedError(f"{response.length:,} bytes come, where {lacking:,} were expected")
        while piece := response.read1(_PIECE_BYTES):
            if self._have + len(piece) > self._offer.size:
                raise _ChangedError(f"more bytes come than the {self._offer.size:,} that were offered")
            self._write(piece)
            self._progress(self._have, self._offer.size)
            self._cancellation.check()
        if self._have < self._offer.size:
            raise ConnectionError(f"the connection ended after {self._have:,} of {self._offer.size:,} bytes")

    def _check_status(self, response: HTTPResponse) -> None:
        status = response.status
        if status in (200, 206):
            return
        said = _said(response)
        if status == 416:
            raise _ChangedError(said)
        if status >= 500 or status in _AGAIN:
            raise _UnavailableError(f"the server answers {status}: {said}")
        if status == 412:
            self._path.unlink()
            raise failed(self._location, f"it was replaced after it was offered ({said})", "Try again")
        if status == 404:
            self._path.unlink()
            raise failed(self._location, f"it was removed after it was offered ({said})")
        if status == 403:
            raise failed(
                self._location, f"it may not be read ({said})", "Try again: offers expire after some hours"
            )
        raise failed(self._location, f"the server answers {status} ({said})")

    def _check_range(self, text: str) -> None:
        found = _RANGE.fullmatch(text.strip())
        begin, size = self._have, self._offer.size
        if found is None or tuple(map(int, found.groups())) != (begin, size - 1, size):
            raise _ChangedError(f"'{text}' comes, where 'bytes {begin}-{size - 1}/{size}' was asked for")

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                count = os.pwrite(self._file, rest, self._have)
            except OSError as error:
                raise disk_failed(self._path, error) from error
            rest = rest[count:]
            self._have += count

    def _begin_again(self) -> None:
        os.ftruncate(self._file, 0)
        self._have = 0


def disk_failed(path: Path, error: OSError) -> ApiError:
    """The disk of a node does not take what it should."""
    text = f"a model cannot be written to {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApiError("InsufficientStorage", f"{text}; free some of the disk of this node", 507)
    return ApiError("InternalFailure", text, 500)


def _said(response: HTTPResponse) -> str:
    """What a server says about an error, in a line: S3's message, or the beginning of the text."""
    text = response.read(_TEXT_BYTES).decode(errors="replace")
    found = _MESSAGE.search(text)
    line = " ".join((found.group(1) if found else text).split())
    return line[:_SHOWN] or response.reason
