"""Sends payloads to a job's instances, again if an answer is worth another try."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from halimede.core.backoff import Backoff
from halimede.hosting.transform.exchange import exchange, exchange_stream
from halimede.hosting.transform.failures import TransformError
from halimede.hosting.transform.lanes import Lane, Lanes
from halimede.hosting.transform.spec import TransformSpec
from halimede.http1.client import CallError, RefusedError

_LOST_TRIES = 3
"""So often at least a request is done again that was lost with its instance."""

_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 8.0

_BUSY = (408, 429)
"""Statuses of clients' mistakes with which an instance says that another try may succeed."""

_SHOWN = 512


class Exchanges(Protocol):
    """Requests to instances; `exchange` has them."""

    async def payload(self, lane: Lane, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a payload."""

    async def stream(self, lane: Lane, read: Callable[[int], bytes], out: BinaryIO) -> tuple[int, bytes]:
        """Status of the answer to an object that is sent in chunks; the answer goes to a file."""


@dataclass(frozen=True, slots=True)
class HttpExchanges:
    """Requests of a job to its instances over HTTP."""

    spec: TransformSpec

    async def payload(self, lane: Lane, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a payload."""
        return await exchange(lane, self._headers(), body, self.spec.timeout_s)

    async def stream(self, lane: Lane, read: Callable[[int], bytes], out: BinaryIO) -> tuple[int, bytes]:
        """Status of the answer to an object that is sent in chunks; the answer goes to a file."""
        return await exchange_stream(lane, self._headers(), read, out, self.spec.timeout_s)

    def _headers(self) -> dict[str, str]:
        named = {"Content-Type": self.spec.content_type, "Accept": self.spec.accept}
        return {name: value for name, value in named.items() if value}


class Sender:
    """Sends payloads, each to an instance that has a place for it. Lives on the event loop."""

    def __init__(self, lanes: Lanes, exchanges: Exchanges, retries: int, timeout_s: float) -> None:
        self._lanes = lanes
        self._exchanges = exchanges
        self._retries = retries
        self._timeout_s = timeout_s

    async def payload(self, body: bytes) -> bytes:
        """The model's answer to a payload.

        Raises:
            TransformError: there is none, or an error, also after all tries.
        """
        return await self._again(lambda lane: self._exchanges.payload(lane, body))

    async def stream(self, begin: Callable[[], Callable[[int], bytes]], out: BinaryIO) -> None:
        """Have the model's answer to an object that is sent in chunks written to a file.

        Args:
            begin: makes what reads the object from its beginning.
            out: the file.

        Raises:
            TransformError: there is none, or an error, also after all tries.
        """

        async def once(lane: Lane) -> tuple[int, bytes]:
            await asyncio.to_thread(_empty, out)
            return await self._exchanges.stream(lane, await asyncio.to_thread(begin), out)

        await self._again(once)

    async def _again(self, once: Callable[[Lane], Awaitable[tuple[int, bytes]]]) -> bytes:
        tries = lost = 0
        backoff = Backoff(_BACKOFF_S, _LONGEST_BACKOFF_S)
        loop = asyncio.get_running_loop()
        refused: float | None = None  # since when
        while True:
            lane = await self._lanes.acquire()
            try:
                status, body = await once(lane)
            except RefusedError as error:
                self._lanes.refuse(lane)
                refused = loop.time() if refused is None else refused
                if loop.time() - refused <= self._lanes.patience_s:
                    continue  # it is noticed in time that the instance is gone
                raise TransformError("InternalServerError", f"the model gave no answer: {error}") from None
            except TimeoutError:
                tries += 1
                failure = TransformError(
                    "InternalServerError", f"the model did not answer within {self._timeout_s:g} seconds"
                )
            except CallError as error:
                self._lanes.refuse(lane)
                lost += 1
                failure = TransformError("InternalServerError", f"the model gave no answer: {error}")
            else:
                if 200 <= status < 300:
                    return body
                tries += 1
                failure = _failure(status, body)
                if 400 <= status < 500 and status not in _BUSY:
                    raise failure
            finally:
                self._lanes.release(lane)
            if tries > self._retries or lost > max(_LOST_TRIES, self._retries):
                raise failure
            await backoff.pause()
            refused = None


def _failure(status: int, body: bytes) -> TransformError:
    text = body[:_SHOWN].decode(errors="replace").strip()
    kind = "ClientError" if 400 <= status < 500 else "InternalServerError"
    return TransformError(kind, f"the model answered with status {status}: {text}")


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()
