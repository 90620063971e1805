"""Where objects can be: each place tells of an object, and has it as a file for a while."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.s3_urls import bucket_and_key
from halimede.hosting.store.source import ObjectInfo, OnProgress

if TYPE_CHECKING:  # nodes of a cluster need nothing of the store's
    from halimede.hosting.store.records import StoredObject


@dataclass(frozen=True, slots=True)
class Location:
    """An object.

    Attributes:
        bucket: its bucket.
        key: its key.
        account: who asks for it.
        purpose: what it is asked for, as the text of an error says it.
        example: what its owner may call the file that they put there.
    """

    bucket: str
    key: str
    account: str
    purpose: str = "download model data"
    example: str = "model.tar.gz"

    @property
    def url(self) -> str:
        """How users write it."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object that was found below a prefix.

    Attributes:
        url: ``s3://bucket/key``.
        size: its bytes.
        etag: changes whenever its content does.
        modified: when it was put.
    """

    url: str
    size: int
    etag: str
    modified: datetime


class Place(Protocol):
    """Has objects. Called on the event loop."""

    async def describe(self, location: Location) -> ObjectInfo:
        """What is known of an object.

        Raises:
            ApiError: it is not there, or cannot be read.
        """

    def archive(
        self, location: Location, directory: Path, on_progress: OnProgress
    ) -> AbstractAsyncContextManager[Path]:
        """The object as a file, which is there during the block.

        Args:
            location: the object.
            directory: where a temporary file may be; it is there.
            on_progress: told how much of it there is.

        Raises:
            ApiError: it is not there, cannot be read, or does not fit on the disk.
        """

    async def write(self, location: Location, content: bytes | Path, content_type: str) -> None:
        """Put an object, whose bytes are these or those of a file. It is there whole, or as it was before.

        Raises:
            ApiError: it cannot be written.
        """

    async def below(self, prefix: Location) -> list[ListedObject]:
        """The objects whose keys begin with a location's key, in the order of their keys.

        Raises:
            ApiError: they cannot be listed.
        """


class LocalPlace(Place, Protocol):
    """Has objects whose bytes are files of this machine."""

    async def open(self, location: Location) -> "tuple[StoredObject, FileIO]":
        """An object and a file with its bytes, which the caller closes.

        Raises:
            ApiError: it is not there, or cannot be read.
        """


def failed(location: Location, why: str, advice: str = "") -> ApiError:
    """An object cannot be had."""
    where = f"bucket: {location.bucket}, key: {location.key}" if location.bucket else f"file: {location.key}"
    advice = advice or (
        "Please ensure that there is an object located at the URL and that this host may read it"
    )
    return invalid(f"Failed to {location.purpose} ({where}): {why}. {advice}")


def too_slow(location: Location, timeout_s: float, reached: str) -> ApiError:
    """A model has not been there in time; `reached` says what had become of it."""
    advice = "Raise ModelDataDownloadTimeoutInSeconds of the variant, or pack the model without compression"
    return failed(location, f"it took longer than {timeout_s:g} seconds, and {reached}", advice)


def location_of(url: str, account: str) -> Location:
    """The model archive that a URL names, for an account.

    Raises:
        ApiError: it names none.
    """
    bucket, key = bucket_and_key(url)
    if bucket and key:
        return Location(bucket, key, account)
    raise invalid(f"'{url}' is no URL of model data; expected s3://BUCKET/KEY")
