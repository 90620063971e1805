"""Which objects of a bucket are asked for, and a page of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from halimede.hosting.store.records import StoredObject

_ABOVE = b"\xff"
"""No key has such a byte, since keys are UTF-8: prefix and it are above all keys with the prefix."""

_GROUPED_ROWS = 64
"""So many rows are looked at before those of a group are skipped."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for.

    Attributes:
        prefix: keys begin with it.
        delimiter: keys that are the same up to the first one after the prefix are told as one; "" for none.
        after: keys, and groups of keys, come after this one.
        limit: so many at most.
    """

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = 1000


@dataclass(slots=True)
class Page:
    """What there is.

    Attributes:
        objects: key and object, in the order of the keys' bytes.
        groups: what keys have in common up to a delimiter.
        last: the last key or group of the page, from which the next page goes on.
        is_truncated: there is more.
    """

    objects: list[tuple[str, StoredObject]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    last: str = ""
    is_truncated: bool = False


Rows = Callable[[bytes, bytes, bytes, int], list[tuple[bytes, StoredObject]]]
"""So many rows whose keys are above the first, from the second and below the third."""


def page(listing: Listing, rows: Rows) -> Page:
    """A page of what is there."""
    found = Page()
    if not listing.limit:
        return found
    prefix, delimiter = listing.prefix.encode(), listing.delimiter.encode()
    above = listing.after.encode()
    if above and _group(above, prefix, delimiter) == above:
        above += _ABOVE
    while True:
        room = listing.limit - len(found.objects) - len(found.groups)
        limit = min(room + 1, _GROUPED_ROWS) if delimiter else room + 1
        batch = rows(above, prefix, prefix + _ABOVE, limit)
        for key, stored in batch:
            if not room:
                found.is_truncated = True
                return found
            room -= 1
            group = _group(key, prefix, delimiter)
            if group:
                found.last = group.decode()
                found.groups.append(found.last)
                above = group + _ABOVE
                break
            found.last = key.decode()
            found.objects.append((found.last, stored))
            above = key
        else:
            if len(batch) < limit:
                return found


def _group(key: bytes, prefix: bytes, delimiter: bytes) -> bytes:
    """What the key has in common with others up to a delimiter; nothing if it stands for itself."""
    if not delimiter or not key.startswith(prefix):
        return b""
    place = key.find(delimiter, len(prefix))
    return b"" if place < 0 else key[: place + len(delimiter)]
