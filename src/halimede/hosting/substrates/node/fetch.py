"""A model that one process of a node makes, while the others wait."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from halimede.core.errors import HalimedeError, InvalidArgumentError, OutOfMemoryError
from halimede.hosting.errors import ApiError
from halimede.hosting.store.extraction import Extraction, refused
from halimede.hosting.store.source import Offer
from halimede.hosting.substrates.node.cancellation import Cancellation
from halimede.hosting.substrates.node.download import Progress, download
from halimede.hosting.substrates.node.layout import About, Layout, key_of
from halimede.hosting.substrates.node.room import Room
from halimede.repository.locks import lock

_REFUSED_S = 60.0
"""For so long nobody tries again to use an archive that cannot be extracted."""


class Fetch:
    """The right to make a model, until `end`. What another has begun is continued."""

    def __init__(
        self, layout: Layout, room: Room, offer: Offer, now: Callable[[], float], descriptor: int
    ) -> None:
        self._layout = layout
        self._room = room
        self._offer = offer
        self._now = now
        self._lock = descriptor
        self._directory = layout.fetch(key_of(offer))
        self._archive = self._directory / "archive"
        self._entry = self._directory / "entry"
        self._refusal = self._directory / "refused.json"

    @classmethod
    def begin(cls, layout: Layout, room: Room, offer: Offer, now: Callable[[], float]) -> "Fetch | None":
        """The right to make a model, unless another process has it."""
        path = layout.fetch(key_of(offer))
        path.mkdir(exist_ok=True)
        try:
            descriptor = lock(path)
        except FileNotFoundError:  # whoever made it has just come to an end
            return None
        return None if descriptor is None else cls(layout, room, offer, now, descriptor)

    def run(self, cancellation: Cancellation, progress: Progress) -> int:
        """Make the model: a descriptor that holds it.

        Raises:
            ApiError: it cannot be had.
            StoppedError: nobody wants it any more.
            ExpiredError: it took too long.
        """
        self._check_refusal()
        self._layout.remove(self._entry)  # its maker is dead
        self._room.reserve(self._directory, self._offer, cancellation)
        download(self._offer, self._archive, cancellation, progress)
        size = self._extract(cancellation)
        About(self._offer.name, size).write(self._entry)
        (self._entry / "stamp").touch()
        return self._publish(size, cancellation)

    def _extract(self, cancellation: Cancellation) -> int:
        """Extract the archive: what its files take on disk."""
        self._entry.mkdir()
        extraction = Extraction(self._archive, self._entry / "model")
        while True:
            try:
                with cancellation.interrupting(extraction.stop):
                    return extraction.run()
            except HalimedeError as error:
                cancellation.check()
                if isinstance(error, OutOfMemoryError) and self._room.evict_one(cancellation):
                    continue
                self._archive.unlink(missing_ok=True)
                models = self._layout.directory / "model"
                refusal = refused(error, self._archive, models, self._offer.name)
                if isinstance(error, InvalidArgumentError):
                    self._refuse(refusal)
                raise refusal from None

    def _refuse(self, error: ApiError) -> None:
        """Spare those who wait for the model that they fetch an archive that they cannot use."""
        fields = {"until": self._now() + _REFUSED_S, "code": error.code, "message": error.message}
        self._refusal.write_text(json.dumps(fields))

    def _check_refusal(self) -> None:
        """Refuse what another process has just found to be none.

        Raises:
            ApiError: as the other process did.
        """
        with suppress(FileNotFoundError, ValueError):
            fields = json.loads(self._refusal.read_bytes())
            now = self._now()
            if now < fields["until"] <= now + _REFUSED_S:
                raise ApiError(fields["code"], fields["message"])
        self._refusal.unlink(missing_ok=True)

    def _publish(self, size: int, cancellation: Cancellation) -> int:
        """Let others see the model."""

        def publish() -> None:
            self._entry.rename(self._layout.model(key_of(self._offer)))
            self._archive.unlink()

        descriptor = lock(self._entry, shared=True)
        assert descriptor is not None, "only who makes an entry knows of it"
        try:
            self._room.publish(self._directory, self._offer, size, cancellation, publish)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, ApiError):
                self._archive.unlink(missing_ok=True)
            raise
        return descriptor

    def end(self) -> None:
        """Let others make the model. What has been fetched is kept for them."""
        try:
            self._layout.remove(self._entry)
            if not fetched_bytes(self._directory) and not self._refusal.exists():
                self._layout.remove(self._directory)
        finally:
            os.close(self._lock)


def fetched_bytes(directory: Path) -> int:
    """How much of an archive is there."""
    try:
        return (directory / "archive").stat().st_size
    except OSError:
        return 0
