"""Models on the disk of a node, shared by all processes of it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.store.source import Offer


@dataclass(slots=True)
class HeldModel:
    """A model that stays on disk until it is released.

    Attributes:
        directory: the extracted model.
        disk_bytes: what its files take on disk.
    """

    directory: Path
    disk_bytes: int

    def release(self) -> None:
        """Let the model be evicted when its room is needed; it may be called again."""
        raise NotImplementedError


class NodeStore:
    """The models of a node."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        raise NotImplementedError

    def take(
        self, offer: Offer, timeout_s: float, on_progress: Callable[[int, int], None], stop: threading.Event
    ) -> HeldModel:
        """A model, fetched if it is not there. Blocks."""
        raise NotImplementedError

    def used_bytes(self) -> int:
        """What all models take on disk."""
        raise NotImplementedError

    def tidy(self) -> None:
        """Remove what dead processes have left."""
        raise NotImplementedError
