"""Where model archives come from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What is known of an object without reading it.

    Attributes:
        size: its bytes.
        etag: changes whenever its content does.
        content_type: what it was put as; "" if nobody knows.
    """

    size: int
    etag: str
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """Where another machine fetches an archive from; all of it can be written as JSON.

    Attributes:
        url: ``http://…`` or ``https://…``; a GET without further credentials answers with the archive, for some hours.
            `Range` and `If-Match` work.
        size: its bytes.
        etag: of the object that is offered; if another one has taken its place, the answer is 412.
        name: the URL that users know, ``s3://…``, for texts.
    """

    url: str
    size: int
    etag: str
    name: str


OnProgress = Callable[[int, int], None]
"""Called on the event loop now and then with how many bytes there are, and of how many."""


class ModelSource(Protocol):
    """Fetches model archives. Called on the event loop."""

    async def describe(self, url: str) -> ObjectInfo:
        """What is known of the object at ``s3://bucket/key``.

        Raises:
            ApiError: it is not there or cannot be read; the text names bucket and key, and what to check.
        """

    async def offer(self, url: str) -> Offer:
        """Where another machine fetches the object at ``s3://bucket/key`` from.

        Raises:
            ApiError: as `describe`.
        """

    async def fetch_model(self, url: str, directory: Path, timeout_s: float, on_progress: OnProgress) -> int:
        """Download an archive and extract it into `directory`, which must not be there; nothing is left of a failure.

        Returns:
            The bytes that it takes on disk.

        Raises:
            ApiError: it is not there, is no archive that may be served, does not fit on the disk, or it took longer
                than `timeout_s`; the text says which, and what to do.
        """
