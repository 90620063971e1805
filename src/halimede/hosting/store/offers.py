"""Objects of this host that other machines may fetch: URLs that are permissions, and the answers to them.

A URL has a token, which names one version of one object and ends; whoever has it may read that and nothing else. Tokens
are authenticated with a secret of the host's, so that they hold in its next process too, and nothing is kept of them.
"""

import binascii
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import format_datetime
from io import FileIO
from pathlib import Path
from typing import Protocol

from halimede.core.clock import WALL_CLOCK
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request, response_head
from halimede.hosting.secret_file import read_secret
from halimede.hosting.store import download
from halimede.hosting.store.conditions import check_range, check_read, read_range
from halimede.hosting.store.failures import precondition_failed
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.places import Location
from halimede.hosting.store.records import StoredObject
from halimede.hosting.store.source import Offer

PREFIX = "/offers/"
"""What the paths of offers begin with."""

LIFETIME_S = 12 * 3600.0
"""How long an offer holds."""

_TEXT = ("Content-Type", "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token permits.

    Attributes:
        location: the object, and for whom it is read.
        etag: its version.
    """

    location: Location
    etag: str


class OfferTokens:
    """Makes tokens and reads them. Lives on the event loop; `open` before, which blocks."""

    def __init__(self, path: Path, now: Callable[[], float] = WALL_CLOCK.now) -> None:
        """Tokens.

        Args:
            path: the file with the secret, which is made if there is none.
            now: seconds since the epoch.
        """
        self._path = path
        self._now = now
        self._secret = b""
        self._base_url = ""

    def open(self, base_url: str) -> None:
        """Read the secret; other machines reach the host at a URL such as ``http://10.0.0.5:8088``."""
        self._secret = read_secret(self._path, "URLs of offered objects")
        self._base_url = base_url.rstrip("/")

    def offer(self, location: Location, size: int, etag: str) -> Offer:
        """An offer of an object as it is now."""
        fields = [location.account, location.bucket, location.key, etag, int(self._now() + LIFETIME_S)]
        content = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        token = f"{_encoded(content)}.{_encoded(self._seal(content))}"
        return Offer(f"{self._base_url}{PREFIX}{token}", size, etag, location.url)

    def read(self, token: str) -> Grant:
        """What a token permits.

        Raises:
            ApiError: it permits nothing (403 ``AccessDenied``).
        """
        text, _, seal = token.partition(".")
        try:
            content = _decoded(text)
            valid = hmac.compare_digest(self._seal(content), _decoded(seal))
        except (binascii.Error, ValueError):
            valid = False
        if not valid:
            raise ApiError("AccessDenied", "this is no URL of an object that this host has offered", 403)
        account, bucket, key, etag, expires = json.loads(content)
        location = Location(bucket, key, account)
        if self._now() >= expires:
            raise ApiError("AccessDenied", f"the offer of {location.url} has expired", 403)
        return Grant(location, etag)

    def _seal(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, content, "sha256")


class OpenObjects(Protocol):
    """Has objects as files. Called on the event loop."""

    async def open(self, location: Location) -> tuple[StoredObject, FileIO]:
        """An object and a file with its bytes, which the caller closes.

        Raises:
            ApiError: it is not there, or cannot be read.
        """


class OfferService:
    """Answers requests for objects that were offered. Lives on the event loop."""

    def __init__(
        self,
        tokens: OfferTokens,
        objects: OpenObjects,
        store: ObjectStore,
        denied: Callable[[Request, ApiError], None],
    ) -> None:
        """A service.

        Args:
            tokens: those that were given.
            objects: the objects.
            store: reads files.
            denied: told of requests whose token permits nothing.
        """
        self._tokens = tokens
        self._objects = objects
        self._store = store
        self._denied = denied

    async def handle(self, request: Request) -> None:
        """Answer a GET or a HEAD."""
        try:
            await self._handle(request)
        except ApiError as error:
            if error.status == 403:
                self._denied(request, error)
            headers = [(name, str(value)) for name, value in error.fields.items()]
            request.respond(error.status, error.message.encode(), (*headers, _TEXT))

    async def _handle(self, request: Request) -> None:
        grant = self._tokens.read(request.head.path.removeprefix(PREFIX))
        try:
            stored, file = await self._objects.open(grant.location)
        except ApiError as error:
            raise ApiError(error.code, error.message, 404 if error.status == 400 else error.status) from None
        with file:
            if stored.etag != grant.etag:
                what = f"{grant.location.url} was replaced: its ETag was {grant.etag} and is {stored.etag}"
                raise precondition_failed(what)
            status, headers, extent = _answer(request, stored)
            if request.head.method == "HEAD":
                request.begin(response_head(status, (*headers, ("Content-Length", str(extent[1])))))
                request.end()
            else:
                await download.send(request, status, headers, file, extent, self._store)


def _answer(request: Request, stored: StoredObject) -> tuple[int, list[tuple[str, str]], tuple[int, int]]:
    """Status and headers of an object, and which of its bytes."""
    asked = request.head.headers
    check_read(asked, stored)
    wanted = read_range(asked.get("range"), stored.size) if check_range(asked, stored) else None
    headers = [
        ("Content-Type", "application/octet-stream"),
        ("ETag", f'"{stored.etag}"'),
        ("Last-Modified", format_datetime(stored.modified, usegmt=True)),
        ("Accept-Ranges", "bytes"),
    ]
    if wanted is None:
        return 200, headers, (0, stored.size)
    begin, length = wanted
    headers.append(("Content-Range", f"bytes {begin}-{begin + length - 1}/{stored.size}"))
    return 206, headers, wanted


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
