"""Objects of an S3 service elsewhere, through `obstore`: fetched in ranges, several at a time.

Only a host that has such a service imports this: it takes boto3, whose import is a tenth of the time in which a host
starts.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.store.endpoints import AWS
from halimede.hosting.store.offers import LIFETIME_S
from halimede.hosting.store.places import ListedObject, Location, failed
from halimede.hosting.store.source import ObjectInfo, Offer, OnProgress
from halimede.repository.private_directories import PrivateDirectory

_PREFIX = ".halimede-downloading-"
_PIECE_BYTES = 8 << 20
_AT_A_TIME = 8
_RETRIES = 5
_RETRY_TIMEOUT = timedelta(seconds=30)
_USUAL_REGION = "us-east-1"


class RemotePlace:
    """An S3 service; credentials and region are those of the environment, as boto3 finds them."""

    def __init__(self, endpoint: str) -> None:
        """A service.

        Args:
            endpoint: its URL, or ``aws``.
        """
        self.endpoint = endpoint
        self._stores: dict[str, S3Store] = {}
        self._settings: dict[str, Any] | None = None

    async def describe(self, location: Location) -> ObjectInfo:
        """What is known of an object.

        Raises:
            ApiError: it is not there, or the service does not let this host read it, or cannot be reached.
        """
        store = await self._store(location)
        try:
            # `head_async` does not tell the content's type
            answer = await obstore.get_async(store, location.key, options={"head": True})
        except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
            raise self._refused(location, error) from None
        content_type = str(answer.attributes.get("Content-Type", ""))
        return ObjectInfo(answer.meta["size"], answer.meta["e_tag"] or "", content_type)

    async def offer(self, location: Location) -> Offer:
        """A URL of the service's own, which is signed with this host's credentials if it has any.

        Raises:
            ApiError: as `describe` does.
        """
        info = await self.describe(location)
        store = await self._store(location)
        settings = self._settings or {}
        if settings.get("skip_signature"):
            url = f"{settings['endpoint'].rstrip('/')}/{location.bucket}/{quote(location.key)}"
        else:
            try:
                url = await obstore.sign_async(store, "GET", location.key, timedelta(seconds=LIFETIME_S))
            except (BaseError, ValueError) as error:
                raise self._refused(location, error) from None
        return Offer(url, info.size, info.etag.removeprefix("W/").strip('"'), location.url)

    @asynccontextmanager
    async def archive(
        self, location: Location, directory: Path, on_progress: OnProgress
    ) -> AsyncIterator[Path]:
        """The object, downloaded into a temporary file.

        Raises:
            ApiError: it is not there, cannot be read, changes meanwhile, or does not fit on the disk.
        """
        info = await self.describe(location)
        try:
            temporary = await tasks.opened(
                PrivateDirectory.make, directory, _PREFIX, close=PrivateDirectory.remove
            )
        except OSError as error:
            raise _no_file(directory, error) from error
        try:
            path = temporary.path / "archive"
            await self._download(location, info, path, on_progress)
            yield path
        finally:
            await asyncio.shield(asyncio.to_thread(temporary.remove))

    async def write(self, location: Location, content: bytes | Path, content_type: str) -> None:
        """Put an object, in parts if it is large.

        Raises:
            ApiError: the service does not take it, or cannot be reached.
        """
        store = await self._store(location)
        try:
            await obstore.put_async(store, location.key, content, attributes={"Content-Type": content_type})
        except (BaseError, OSError, ValueError) as error:
            raise self._refused(location, error) from None

    async def below(self, prefix: Location) -> list[ListedObject]:
        """The objects below a prefix.

        Raises:
            ApiError: the service does not list them, or cannot be reached.
        """
        # obstore looks for whole parts between slashes
        parent = prefix.key.rpartition("/")[0]
        store = await self._store(Location(prefix.bucket, parent, prefix.account, prefix.purpose))
        found: list[ListedObject] = []
        try:
            async for page in obstore.list(store, parent or None):
                found += [
                    ListedObject(
                        f"s3://{prefix.bucket}/{each['path']}",
                        each["size"],
                        (each["e_tag"] or "").strip('"'),
                        each["last_modified"],
                    )
                    for each in page
                    if each["path"].startswith(prefix.key)
                ]
        except (BaseError, OSError, ValueError) as error:
            raise self._refused(prefix, error) from None
        return sorted(found, key=lambda each: each.url.encode())

    async def _download(
        self, location: Location, info: ObjectInfo, path: Path, on_progress: OnProgress
    ) -> None:
        free = shutil.disk_usage(path.parent).free
        if info.size > free:
            msg = (
                f"{location.url} has {info.size:,} bytes and {free:,} are free on the disk of {path.parent.parent}; "
                "free some of it"
            )
            raise ApiError("InsufficientStorage", msg, 507)
        store = await self._store(location)
        begins = iter(range(0, info.size, _PIECE_BYTES))
        done = 0

        async def fetch(file: int, begins: Iterator[int]) -> None:
            nonlocal done
            for begin in begins:
                end = min(begin + _PIECE_BYTES, info.size)
                options: dict[str, Any] = {"range": (begin, end)}
                if info.etag:
                    options["if_match"] = info.etag
                answer = await obstore.get_async(store, location.key, options=options)  # type: ignore[arg-type]
                data = await answer.bytes_async()
                if len(data) != end - begin:
                    raise failed(location, f"{len(data)} bytes came where {end - begin} were asked for")
                await asyncio.to_thread(_write, file, data, begin)
                done += end - begin
                on_progress(done, info.size)

        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _no_file(path.parent.parent, error) from error
        try:
            await tasks.all_of(fetch(file, begins) for _ in range(_AT_A_TIME))
        except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
            raise self._refused(location, error) from None
        except OSError as error:
            raise _no_file(path.parent.parent, error) from error
        finally:
            os.close(file)

    async def _store(self, location: Location) -> S3Store:
        key = location.key
        if key.startswith("/") or key.endswith("/") or "//" in key:
            raise failed(
                location, "a key with an empty part between slashes cannot be read from this service"
            )
        store = self._stores.get(location.bucket)
        if store is None:
            if self._settings is None:
                self._settings = await asyncio.to_thread(_settings, self.endpoint)
            try:
                store = S3Store(location.bucket, **self._settings)
            except (BaseError, ValueError) as error:
                raise self._refused(location, error) from None
            self._stores[location.bucket] = store
        return store

    def _refused(self, location: Location, error: Exception) -> ApiError:
        """Why an object cannot be had, in a line."""
        reason = str(error).partition("\n\nDebug source")[0].partition("\n")[0]
        service = f"the S3 service at {self.endpoint}" if self.endpoint != AWS else "S3"
        match error:
            case FileNotFoundError():
                advice = f"Put it there with: aws s3 cp {location.example} {location.url}"
                return failed(location, f"there is no such object in {service}", advice)
            case PermissionDeniedError() | UnauthenticatedError() | PermissionError():
                advice = "Check that the credentials in the host's environment are those of somebody who may do that"
                return failed(location, f"{service} refuses it ({reason})", advice)
            case PreconditionError():
                return failed(location, "it was replaced while it was downloaded", "Try again")
            case _:
                return failed(
                    location, f"{service} does not do that ({reason})", "Check the endpoint and the key"
                )


def _settings(endpoint: str) -> dict[str, Any]:
    """What all stores of a service are made with; blocks."""
    session = boto3.Session()
    region = session.region_name or _USUAL_REGION
    settings: dict[str, Any] = {
        "region": region,
        "endpoint": f"https://s3.{region}.amazonaws.com" if endpoint == AWS else endpoint,
        "client_options": {"allow_http": endpoint.startswith("http://"), "timeout": timedelta(minutes=10)},
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
    }
    try:
        settings["credential_provider"] = Boto3CredentialProvider(session)
    except ValueError:  # there are none: what is public can still be read
        settings["skip_signature"] = True
    return settings


def _write(file: int, data: Any, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(file, rest, offset)
        rest, offset = rest[count:], offset + count


def _no_file(directory: Path, error: OSError) -> ApiError:
    msg = f"an object cannot be written below {directory}: {error.strerror}; free some of its disk"
    return ApiError("InsufficientStorage", msg, 507)
