"""Where a model goes that no instance has: rendezvous hashing, so that few move when instances come and go."""

import hashlib
from collections.abc import Sequence

import numpy as np

from halimede.hosting.routing.table import Target

Seeds = np.ndarray[tuple[int], np.dtype[np.uint64]]
"""[instances]: the hash of each one's id."""

_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(33)


def hash64(name: str) -> int:
    """64 bits of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def weights(model: str, seeds: Seeds) -> Seeds:
    """[instances]: the one of the largest weight should have the model."""
    mixed = seeds ^ np.uint64(hash64(model))
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX  # modulo 2**64, as arrays do
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX
    return mixed


def ranked(model: str, targets: Sequence[Target]) -> list[Target]:
    """The instances, the one first that should have the model."""
    order = weights(model, seeds_of(targets)).argsort()[::-1]
    return [targets[number] for number in order]


def seeds_of(targets: Sequence[Target]) -> Seeds:
    """What `weights` needs to know of instances."""
    return np.array([hash64(target.id) for target in targets], np.uint64)
