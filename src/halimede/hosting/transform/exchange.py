"""One request of a job to an instance: payloads and answers of any size."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

from halimede.core import tasks
from halimede.hosting.transform.lanes import Lane
from halimede.http1.client import Body, CallError, Exchange

_ANSWER_BYTES = 512 << 20
"""Of an answer that is kept in memory."""

_ERROR_BYTES = 1 << 16
"""Of an answer that is no success."""


async def exchange(lane: Lane, headers: dict[str, str], body: bytes, timeout_s: float) -> tuple[int, bytes]:
    """Send a payload: the status and the body of the answer.

    Raises:
        TimeoutError: there is no answer within the time.
        RefusedError: the instance accepts no connection.
        CallError: there will be none; the text says why.
    """
    async with asyncio.timeout(timeout_s), _answer(lane, headers, body) as answer:
        if _is_success(await answer.begun()):
            return answer.status, await answer.body(_ANSWER_BYTES)
        return answer.status, await answer.beginning(_ERROR_BYTES)


async def exchange_stream(
    lane: Lane, headers: dict[str, str], read: Callable[[int], bytes], out: BinaryIO, timeout_s: float
) -> tuple[int, bytes]:
    """Send what `read` gives, in chunks, and write the answer to a file: its status, and the body if it is no success.

    Raises:
        TimeoutError: there is no answer within the time.
        RefusedError: the instance accepts no connection.
        CallError: there will be none; the text says why.
        TransformError: there is nothing to read.
    """
    async with asyncio.timeout(timeout_s), _answer(lane, headers, read) as answer:
        if not _is_success(await answer.begun()):
            return answer.status, await answer.beginning(_ERROR_BYTES)
        while piece := await answer.read():
            await tasks.on_thread(out.write, piece)
        return answer.status, b""


def _is_success(status: int) -> bool:
    return 200 <= status < 300


@asynccontextmanager
async def _answer(lane: Lane, headers: dict[str, str], body: Body) -> AsyncIterator[Exchange]:
    """The answer to a request, which fails if the instance goes.

    Raises:
        RefusedError: the instance accepts no connection.
    """
    pool = lane.target.pool
    async with Exchange(pool, "POST", "/invocations", headers, body) as answer:

        def lost(_: asyncio.Future[None]) -> None:
            answer.fail(CallError("the instance has ended"))

        lane.lost.add_done_callback(lost)
        try:
            yield answer
        finally:
            lane.lost.remove_done_callback(lost)
