"""Reading a tar archive forwards, whatever it is compressed with, in memory that no archive can make grow.

Needs nothing but the standard library: the program that extracts archives is made of it.
"""

import importlib
import platform
import tarfile
from collections.abc import Iterator
from typing import IO, cast

CHUNK_BYTES = 1 << 20

_MAX_HEADER_BYTES = 1 << 20
"""Bytes of an entry's headers: its name, and the places of a sparse file's pieces. `tarfile` holds them in memory."""

_MAGIC_BYTES = 6
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "lzma",
    b"\x28\xb5\x2f\xfd": "compression.zstd",  # from Python 3.14 on
}
"""How a compressed file begins, and the module that reads it."""


DAMAGES = (tarfile.TarError, ValueError, ArithmeticError, RecursionError)
"""What `tarfile` raises for an archive that is damaged, or made to look so: strange numbers, long chains of headers."""


class ArchiveError(Exception):
    """The archive cannot be extracted; the text says why."""


def read_members(
    archive: IO[bytes], most_bytes: int | None = None
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The entries of a tar archive, compressed or not, and the data of those that are files.

    The data are there until the next entry is asked for, and need not be read.

    Args:
        archive: the file, at its beginning.
        most_bytes: how many there may be when it is decompressed; None for any number.

    Raises:
        ArchiveError: it is no archive, or larger.
        Exception: it is damaged; what `tarfile` raises then, so do its files when they are read. See `DAMAGES`.
    """
    forward = _Forward(_decompressed(archive), most_bytes)
    try:
        tar = tarfile.open(fileobj=cast(IO[bytes], forward), mode="r:")  # noqa: SIM115 - nothing to close
    except tarfile.ReadError as error:
        raise ArchiveError(f"it is no tar archive: {error}") from error
    while (member := tar.next()) is not None:
        forward.begin_data()
        _check_sparse(member)
        yield member, tar.extractfile(member) if member.isfile() else None
        tar.members.clear()  # type: ignore[attr-defined]  # there may be very many
        forward.begin_header()
    # `tarfile` takes whatever it does not understand for the end; a real one is a block of zeros
    if forward.last != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it has no end")
    forward.begin_data()
    while forward.read(CHUNK_BYTES):
        pass  # at its end the stream's checksum is held against what was read


def _check_sparse(member: tarfile.TarInfo) -> None:
    """Refuse a sparse file whose pieces are not in order: `tarfile` would search them all for each byte."""
    end = 0
    for offset, size in getattr(member, "sparse", None) or ():
        if offset < end or size < 0:
            raise tarfile.ReadError("the pieces of a sparse file overlap")
        end = offset + size


def _decompressed(archive: IO[bytes]) -> IO[bytes]:
    magic = archive.read(_MAGIC_BYTES)
    archive.seek(0)
    for begin, module in _COMPRESSIONS.items():
        if magic.startswith(begin):
            try:
                return cast(IO[bytes], importlib.import_module(module).open(archive))
            except ModuleNotFoundError:
                kind = module.rpartition(".")[2]
                raise ArchiveError(
                    f"it is compressed with {kind}, which the server's Python {platform.python_version()} cannot read; "
                    "pack it as .tar.gz"
                ) from None
    return archive


class _Forward:
    """A stream that is only read forwards, so that no decompressor has to begin anew.

    Attributes:
        last: what was read last.
    """

    def __init__(self, stream: IO[bytes], most_bytes: int | None) -> None:
        self.last = b""
        self._stream = stream
        self._most_bytes = most_bytes
        self._position = 0
        self._header_bytes: int | None = 0

    def begin_header(self) -> None:
        """What is read from now on belongs to the headers of one entry."""
        self._header_bytes = 0

    def begin_data(self) -> None:
        """What is read from now on is an entry's data."""
        self._header_bytes = None

    def read(self, size: int) -> bytes:
        """As many bytes, or fewer at the end."""
        if self._header_bytes is not None:
            self._header_bytes += size
            if size < 0 or self._header_bytes > _MAX_HEADER_BYTES:
                raise tarfile.ReadError("the headers of an entry are too large")
            if (
                not self.last and self._position
            ):  # `tarfile` would look for the rest of a sparse file's map for ever
                raise tarfile.ReadError("unexpected end of data")
        return self._read(size)

    def tell(self) -> int:
        """How many bytes have been read."""
        return self._position

    def seek(self, position: int) -> None:
        """Go on to a later position."""
        if position < self._position:
            raise tarfile.ReadError("its entries overlap")
        while self._position < position:
            if not self._read(min(position - self._position, CHUNK_BYTES)):
                raise tarfile.ReadError("unexpected end of data")

    def _read(self, size: int) -> bytes:
        try:
            self.last = self._stream.read(size)
        except MemoryError:
            raise
        except Exception as error:  # each kind of compression has errors of its own
            raise tarfile.ReadError(str(error)) from error
        self._position += len(self.last)
        if self._most_bytes is not None and self._position > self._most_bytes:
            raise ArchiveError(
                f"it decompresses to more than {self._most_bytes:,} bytes, the most for an archive of its size"
            )
        return self.last
