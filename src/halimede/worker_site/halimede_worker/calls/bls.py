"""Business logic scripting: a model has other models run requests, and waits for their responses.

Wherever it does so, in the main thread, in others, in coroutines or in children that it forks, a call holds up
nothing but its caller. What goes wrong in the other model is told in the response; nothing is raised.
"""

import asyncio
import threading
from asyncio import AbstractEventLoop, Future
from contextlib import suppress
from typing import Any, Dict, Optional, Protocol, Tuple, Union

from ..errors import TritonModelException
from ..messages import wire
from ..messages.memory import Outgoing
from ..responses import InferenceResponse
from ..runtime import Stage, runtime
from .answers import answers
from .calls import CallChannel, channels, closed
from .iterators import ResponseIterator

Result = Union[InferenceResponse, ResponseIterator]


class OutgoingRequest(Protocol):
    """A request that a model makes of another."""

    def request_id(self) -> str:
        """What the model calls it."""

    def _encoded(self, outgoing: Outgoing) -> Tuple[Any, ...]:
        """What the server reads; `outgoing` takes the tensors that go through shared memory."""


def execute_inference(request: OutgoingRequest, decoupled: bool) -> Result:
    """Have another model run the request.

    Returns:
        Its response; or, decoupled, an iterator of its responses, once the first one is there.

    Raises:
        TritonModelException: the model that calls is not loaded yet or unloads, or there is no shared memory.
    """
    _check_stage()
    waits = threading.current_thread() is threading.main_thread()
    channel = channels.take()
    try:
        number = _send(channel, request, decoupled, waits)
        if decoupled:
            iterator = ResponseIterator(channel, number)
            iterator.receive()
            return iterator
        answer = channel.receive()
        while answer[1] != number:
            answers.drop(answer)
            answer = channel.receive()
    except wire.ClosedError:
        channel.close()
        raise closed() from None
    except BaseException:
        channel.close()  # the answer may still come, and is not that of the next call
        raise
    channels.put(channel)
    response = answers.open(answer)
    assert response is not None, "only a decoupled model may end without a response"
    return response


def execute_inference_async(request: OutgoingRequest, decoupled: bool) -> "Future[Result]":
    """Have another model run the request, without holding up the event loop that runs.

    Returns:
        A future of that loop, of what `execute_inference` returns. To cancel it cancels the inference.

    Raises:
        RuntimeError: no event loop runs in this thread.
        TritonModelException: as `execute_inference`.
    """
    _check_stage()
    loop = asyncio.get_running_loop()
    if decoupled:
        return _open_stream(loop, request)
    calls: Optional[_LoopCalls] = getattr(_local, "calls", None)
    if calls is None or calls.loop is not loop or calls.channel.inherited:
        if calls is not None:
            calls.channel.close()  # its loop was closed while calls were under way
        calls = _local.calls = _LoopCalls(loop)
    return calls.start(request)


def _check_stage() -> None:
    if runtime.stage is not Stage.READY:
        raise TritonModelException("BLS is only supported during the 'execute' function.")


def _send(channel: CallChannel, request: OutgoingRequest, decoupled: bool, waits: bool) -> int:
    """Send the request: the number of the call."""
    release(channel)
    outgoing = Outgoing(runtime.memory)
    number = channel.number()
    try:
        encoded = request._encoded(outgoing)
        channel.send((wire.INFER, number, encoded, decoupled, waits), outgoing.fresh)
    except MemoryError as error:
        raise TritonModelException(
            f"Failed to copy the inputs of request '{request.request_id()}': {error}"
        ) from error
    return number


def release(channel: Optional[CallChannel] = None) -> None:
    """Tell the server which memory of responses nothing views any more.

    Args:
        channel: any socket for calls; needed in a child of the worker, whose work socket is not its own.

    Raises:
        ClosedError: the server is gone.
    """
    to = channel if channels.forked else runtime.work
    if to is not None:
        answers.release(to)


class _LoopCalls:
    """The calls of one event loop that are under way: one socket for all.

    The socket is watched as long as there are any, and then given back: nothing of this outlives the loop.

    Attributes:
        loop: the event loop.
        channel: the socket.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.channel = channels.take()
        # The requests too: what their tensors view has to stay until the server has read of it
        self._running: Dict[int, Tuple[Future[Result], OutgoingRequest]] = {}
        loop.add_reader(self.channel.socket.fileno(), self._readable)

    def start(self, request: OutgoingRequest) -> "Future[Result]":
        """Make one more call."""
        future: Future[Result] = self.loop.create_future()
        try:
            number = _send(self.channel, request, False, False)
        except wire.ClosedError:
            self._fail()
            raise closed() from None
        except BaseException:
            if not self._running:
                self._end()
                self.channel.close()
            raise
        self._running[number] = future, request
        future.add_done_callback(lambda future: self._cancel(number) if future.cancelled() else None)
        return future

    def _cancel(self, number: int) -> None:
        if number in self._running:
            _stop(self.channel, number)

    def _readable(self) -> None:
        try:
            answer = self.channel.receive()
        except wire.ClosedError:
            self._fail()
            return
        entry = self._running.pop(answer[1], None)
        if entry is None:
            answers.drop(answer)
        else:
            _settle(entry[0], answer)
        if not self._running:
            self._end()
            channels.put(self.channel)

    def _fail(self) -> None:
        """The server is gone."""
        running, self._running = self._running, {}
        self._end()
        self.channel.close()
        for future, _ in running.values():
            if not future.done():
                future.set_exception(closed())

    def _end(self) -> None:
        self.loop.remove_reader(self.channel.socket.fileno())
        _local.calls = None


def _settle(future: "Future[Result]", answer: Tuple[Any, ...]) -> None:
    """The future's result is the response in the answer."""
    try:
        response = answers.open(answer)
    except Exception as error:
        if not future.done():
            future.set_exception(error)
    else:
        assert response is not None, "only a decoupled model may end without a response"
        if not future.done():
            future.set_result(response)


_local = threading.local()
"""`calls`: the `_LoopCalls` of the thread's event loop, if there are any."""


def _open_stream(loop: AbstractEventLoop, request: OutgoingRequest) -> "Future[Result]":
    """A future of the iterator over the responses, which is there with the first of them."""
    future: Future[Result] = loop.create_future()
    channel = channels.take()
    try:
        iterator = ResponseIterator(channel, _send(channel, request, True, False))
    except wire.ClosedError:
        channel.close()
        raise closed() from None
    except BaseException:
        channel.close()
        raise
    descriptor = channel.socket.fileno()

    def readable() -> None:
        if future.done():
            return  # it was cancelled, which `done` will see to
        loop.remove_reader(descriptor)
        try:
            iterator.receive()
        except TritonModelException as error:
            future.set_exception(error)
        else:
            future.set_result(iterator)

    def done(_: Any, request: object = request) -> None:
        """Holds the request, which has to stay until the server has read it."""
        if future.cancelled():
            loop.remove_reader(descriptor)
            iterator.leave(cancel=True)

    loop.add_reader(descriptor, readable)
    future.add_done_callback(done)
    return future


def _stop(channel: CallChannel, number: int) -> None:
    with suppress(wire.ClosedError):  # then nothing runs any more
        channel.send((wire.STOP, number))
