"""What the store keeps beside the bytes: buckets, objects, uploads and their parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from halimede.hosting.store.checksums import Checksum


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket.

    Attributes:
        name: its name.
        created: when it was made.
        account: whose it is.
        region: where its owner asked for it.
    """

    name: str
    created: datetime
    account: str
    region: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, but for its bytes.

    Attributes:
        blob: the name of the file, or of the row, that has its bytes.
        size: its bytes.
        etag: without quotes: the MD5 of its bytes, or of its parts' MD5s and how many there are.
        modified: when it was put.
        headers: what it is answered with, by lower-case name: ``content-type`` and such, and ``x-amz-meta-*``.
        checksum: what its owner asked to be kept with it.
    """

    blob: str
    size: int
    etag: str
    modified: datetime
    headers: Mapping[str, str]
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class SmallPut:
    """A small object that is to be put.

    Attributes:
        bucket: where.
        key: its key.
        data: its bytes.
        headers: as StoredObject has them.
    """

    bucket: str
    key: str
    data: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload in parts that has not been completed.

    Attributes:
        id: its id.
        bucket: where the object will be.
        key: the object's key.
        begun: when it began.
        headers: those of the object, as StoredObject has them.
        algorithm: of the checksums, "" for none.
        checksum_kind: of the object's checksum, "" for none.
    """

    id: str
    bucket: str
    key: str
    begun: datetime
    headers: Mapping[str, str]
    algorithm: str = ""
    checksum_kind: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an upload.

    Attributes:
        number: 1 to 10,000.
        blob: the name of the file that has its bytes.
        size: its bytes.
        etag: the MD5 of its bytes.
        modified: when it was put.
        checksum: its checksum, if it has one.
    """

    number: int
    blob: str
    size: int
    etag: str
    modified: datetime
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold of the object that is replaced.

    Attributes:
        absent: there must be none (``If-None-Match: *``).
        etag: it must have this one (``If-Match``); "" for any.
        account: its bucket must be this account's; "" for any. It may have become another's while a body came.
    """

    absent: bool = False
    etag: str = ""
    account: str = ""
