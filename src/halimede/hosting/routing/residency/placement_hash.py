"""Where a model goes that no instance has: rendezvous hashing, so that few move when instances come and go."""

import hashlib
from collections.abc import Iterable

from halimede.hosting.routing.table import Target


def ranked(model: str, targets: Iterable[Target]) -> list[Target]:
    """The instances, the one first that should have the model."""
    return sorted(targets, key=lambda target: _weight(model, target.id), reverse=True)


def _weight(model: str, instance: str) -> bytes:
    return hashlib.blake2b(f"{instance}\0{model}".encode(), digest_size=8).digest()
