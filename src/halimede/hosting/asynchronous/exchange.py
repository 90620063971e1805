"""One invocation of an instance whose body and response may be as large as the disk has room for."""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from halimede.core import tasks
from halimede.http1.client import Exchange
from halimede.http1.upstream import UpstreamPool


class OversizedError(Exception):
    """The response is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response.

    Attributes:
        status: such as 200.
        headers: by lower-case name.
        body: its bytes, or a file that whoever gets it removes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Path


async def exchange(
    pool: UpstreamPool,
    headers: Mapping[str, str],
    body: bytes | Path,
    directory: Path,
    *,
    timeout_s: float,
    connect_s: float,
    memory_bytes: int,
    limit: int,
) -> Response:
    """Invoke an instance.

    Args:
        pool: connections to it.
        headers: those of the request but for the length.
        body: the request's body, or its file.
        directory: where a large response goes.
        timeout_s: how long it may take to answer.
        connect_s: how long it may take to accept a connection.
        memory_bytes: a larger response goes to a file.
        limit: how large the response may be.

    Raises:
        RefusedError: it accepts no connection.
        CallError: it gave no whole response.
        OversizedError: the response is too large.
        TimeoutError: the response was not complete in time.
        OSError: the body's file cannot be read, or the response does not fit on the disk.
    """
    async with Exchange(pool, "POST", "/invocations", headers, body, connect_s, timeout_s) as answer:
        await answer.begun()
        content = await _collected(answer, directory, memory_bytes, limit)
        return Response(answer.status, answer.headers, content)


async def _collected(answer: Exchange, directory: Path, memory_bytes: int, limit: int) -> bytes | Path:
    """The body of a response, or the file that has it."""
    pieces: list[bytes] = []
    size = held = 0
    file: IO[bytes] | None = None
    try:
        while piece := await answer.read():
            size += len(piece)
            if size > limit:
                raise OversizedError
            pieces.append(piece)
            held += len(piece)
            if held > memory_bytes:
                if file is None:
                    file = await tasks.opened(_result_file, directory, close=_remove)
                await tasks.on_thread(file.writelines, pieces)
                pieces, held = [], 0
        if file is None:
            return b"".join(pieces)
        await tasks.on_thread(file.writelines, pieces)
        await tasks.on_thread(file.close)
        return Path(file.name)
    except BaseException:
        if file is not None:
            await asyncio.shield(asyncio.to_thread(_remove, file))
        raise


def _result_file(directory: Path) -> IO[bytes]:
    return tempfile.NamedTemporaryFile(prefix="result-", dir=directory, delete=False)


def _remove(file: IO[bytes]) -> None:
    try:
        file.close()
    finally:
        Path(file.name).unlink(missing_ok=True)
