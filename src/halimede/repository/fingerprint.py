"""Whether a model's directory changed: names, sizes and times of modification of what is in it, as digests.

Unlike a comparison of the newest time, this sees files replaced by older ones. Byte code caches are left out,
and so are the times of directories below the model's own: writing such a cache changes them. Touching the
model's own directory counts as a change, so that a reload can be asked for.

For a model of a bucket it is the paths, sizes and ETags of its objects, whether they have been fetched or not.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from halimede.core.versions import version_number
from halimede.repository.cloud.listing import Listing

IGNORED = frozenset({"__pycache__"})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a model's directory looked like. Equal fingerprints: nothing changed.

    Attributes:
        config: digest of what configures it, and of the time of modification of a directory that is no bucket's.
        shared: digest of the other files that all versions share, as labels and warm-up data.
        versions: digest of each version's directory.
    """

    config: bytes
    shared: bytes
    versions: Mapping[int, bytes]


def fingerprint(directory: Path) -> Fingerprint:
    """What the model's directory looks like now.

    Files below it that cannot be looked at, or vanish meanwhile, count as being in that condition.

    Raises:
        OSError: the directory cannot be read.
    """
    listing = Listing.read(directory)
    if listing is not None:
        return _fingerprint_of(listing)
    config = hashlib.blake2b(digest_size=16)
    config.update(b"%d\n" % directory.stat().st_mtime_ns)
    shared = hashlib.blake2b(digest_size=16)
    versions = {}
    for entry in _entries(directory):
        version = version_number(entry.name) if entry.is_dir() else None
        if version is not None:
            digest = hashlib.blake2b(digest_size=16)
            versions[version] = digest
        elif configures(entry.name):
            digest = config
        else:
            digest = shared
        for line in _lines(entry, entry.name, frozenset()):
            digest.update(line)
    return Fingerprint(
        config.digest(), shared.digest(), {version: digest.digest() for version, digest in versions.items()}
    )


def configures(name: str) -> bool:
    """Whether what has that name in a model's directory is its configuration, or has others of it."""
    return name == "configs" or name.endswith(".pbtxt")


def _fingerprint_of(listing: Listing) -> Fingerprint:
    """What a model of a bucket looks like."""
    config, shared = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    versions = {version: hashlib.blake2b(digest_size=16) for version in listing.versions}
    for path, each in sorted(listing.objects.items()):
        first, slash, _ = path.partition("/")
        version = version_number(first) if slash else None
        digest = shared if version is None else versions[version]
        if version is None and configures(first):
            digest = config
        digest.update(b"%s\0%d %s\n" % (os.fsencode(path), each.size, os.fsencode(each.tag)))
    return Fingerprint(
        config.digest(), shared.digest(), {version: digest.digest() for version, digest in versions.items()}
    )


def _entries(directory: str | Path) -> "list[os.DirEntry[str]]":
    with os.scandir(directory) as entries:
        return sorted((entry for entry in entries if entry.name not in IGNORED), key=lambda entry: entry.name)


def _lines(entry: "os.DirEntry[str]", relative: str, above: frozenset[tuple[int, int]]) -> Iterator[bytes]:
    """One line for the entry and each one below it. `above`: directories that hold it, against circular links."""
    name = os.fsencode(relative)
    try:
        status = entry.stat()
        if not stat.S_ISDIR(status.st_mode):
            yield b"%s\0%d %d\n" % (name, status.st_size, status.st_mtime_ns)
            return
        yield b"%s/\0\n" % name
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            return
        below = _entries(entry.path)
    except OSError as error:
        yield b"%s\0unreadable %d\n" % (name, error.errno or 0)
        return
    for child in below:
        yield from _lines(child, f"{relative}/{child.name}", above | {identity})
