"""Bytes of a file to a client, at the pace at which it reads."""

import asyncio
import os
from io import FileIO

from halimede.hosting.http.request import Headers, Request, response_head
from halimede.hosting.store.object_store import ObjectStore

_PIECE_BYTES = 1 << 20


async def send(
    request: Request, status: int, headers: Headers, file: FileIO, extent: tuple[int, int], store: ObjectStore
) -> None:
    """Answer with bytes of a file.

    Args:
        request: the client's.
        status: such as 206.
        headers: all but Content-Length.
        file: stays open.
        extent: the first byte, and how many.
        store: reads the file.

    Raises:
        ApiError: nothing could be read, and nothing has been sent.
    """
    offset, left = extent
    piece, state = await store.run(_read, file.fileno(), min(left, _PIECE_BYTES), offset)
    first_state = state
    request.begin(response_head(status, (*headers, ("Content-Length", str(left)))))
    changed = asyncio.Event()
    request.on_writable = request.on_disconnect = changed.set
    while not request.answered:
        if (left and not piece) or state != first_state:
            # the file is not what it was: the client must not take it for all, or for one version
            request.abort()
            return
        request.write(piece)
        offset += len(piece)
        left -= len(piece)
        if not left:
            request.end()
            return
        piece, state = await store.run(_read, file.fileno(), min(left, _PIECE_BYTES), offset)
        while not request.is_writable and not request.answered:
            changed.clear()
            await changed.wait()


def _read(file: int, size: int, offset: int) -> tuple[bytes, tuple[int, int]]:
    """Bytes of a file, and what changes when it is written to."""
    piece = os.pread(file, size, offset)
    found = os.fstat(file)
    return piece, (found.st_mtime_ns, found.st_size)
