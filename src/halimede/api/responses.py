"""Responses to a request in this process, and those who wait for them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from halimede.core.errors import HalimedeError
from halimede.core.requests import ParameterValue
from halimede.core.tensors import Array


@dataclass(frozen=True, slots=True)
class InferenceResponse:
    """One response.

    Attributes:
        model: the model's name.
        version: its version.
        request_id: the request's identifier.
        outputs: name → array; BYTES as an object array of `bytes`. They may be read-only, and may share memory with
            the inputs.
        parameters: parameters that the model has set.
        error: what went wrong; None if nothing did.
        final: whether it is the last one.
        empty: it only says that there is no more.
    """

    model: str
    version: int
    request_id: str
    outputs: dict[str, Array]
    parameters: Mapping[str, ParameterValue]
    error: HalimedeError | None
    final: bool
    empty: bool = False


class ResponseIterator:
    """The responses to a request, as they come."""

    def __init__(self, raise_on_error: bool) -> None:
        self.on_cancel: Callable[[], None] | None = None
        self._raise_on_error = raise_on_error
        self._queue: SimpleQueue[InferenceResponse] = SimpleQueue()
        self._done = False

    def put(self, response: InferenceResponse) -> None:
        """Take a response, from the server's thread."""
        self._queue.put(response)

    def cancel(self) -> None:
        """Give the request up: a model that has not begun with it never will."""
        if self.on_cancel is not None and not self._done:
            self.on_cancel()

    def __iter__(self) -> "ResponseIterator":
        return self

    def __next__(self) -> InferenceResponse:
        """The next response.

        Raises:
            HalimedeError: it is an error, and errors are to be raised.
        """
        if self._done:
            raise StopIteration
        response = self._queue.get()
        self._done = response.final
        if response.empty:
            raise StopIteration
        return _checked(response, self._raise_on_error)


class AsyncResponseIterator:
    """The responses to a request, as they come, in an event loop of the application."""

    def __init__(self, raise_on_error: bool, loop: asyncio.AbstractEventLoop) -> None:
        self.on_cancel: Callable[[], None] | None = None
        self._raise_on_error = raise_on_error
        self._loop = loop
        self._queue: asyncio.Queue[InferenceResponse] = asyncio.Queue()
        self._done = False

    def put(self, response: InferenceResponse) -> None:
        """Take a response, from the server's thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._queue.put_nowait, response)

    def cancel(self) -> None:
        """Give the request up: a model that has not begun with it never will."""
        if self.on_cancel is not None and not self._done:
            self.on_cancel()

    def __aiter__(self) -> "AsyncResponseIterator":
        return self

    async def __anext__(self) -> InferenceResponse:
        """The next response.

        Raises:
            HalimedeError: it is an error, and errors are to be raised.
        """
        if self._done:
            raise StopAsyncIteration
        response = await self._queue.get()
        self._done = response.final
        if response.empty:
            raise StopAsyncIteration
        return _checked(response, self._raise_on_error)


def _checked(response: InferenceResponse, raise_on_error: bool) -> InferenceResponse:
    if response.error is not None and raise_on_error:
        raise response.error
    return response
