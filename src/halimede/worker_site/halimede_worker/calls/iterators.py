"""The responses of a decoupled model to one request."""

import threading
from contextlib import suppress
from typing import List

from ..errors import TritonModelException
from ..messages import wire
from ..responses import InferenceResponse
from .answers import answers
from .calls import CallChannel, channels, closed


class ResponseIterator:
    """The responses, as they come. Made by `InferenceRequest.exec` and `async_exec`, with `decoupled=True`.

    It waits for each response that is not there yet. A loop that was left can be gone on with; once all responses
    have been seen, another loop sees them all again. Any thread may use it.
    """

    __module__ = "c_python_backend_utils"

    __slots__ = ("__weakref__", "_channel", "_finished", "_index", "_lock", "_number", "_responses", "_used")

    def __init__(self, channel: CallChannel, number: int) -> None:
        """The answers with that number, which `channel` has for nothing else until the last one."""
        self._channel = channel
        self._number = number
        self._responses: List[InferenceResponse] = []
        self._index = 0
        self._used = False
        self._finished = False
        self._lock = threading.Lock()

    def __iter__(self) -> "ResponseIterator":
        """From where it is; from the beginning once all were seen."""
        self._used = True
        with self._lock:
            if self._finished and self._index >= len(self._responses):
                self._index = 0
        return self

    def __next__(self) -> InferenceResponse:
        self._used = True
        with self._lock:
            if self._index >= len(self._responses):
                if self._finished:
                    raise StopIteration("Iteration is done for the responses.")
                self.receive()
            response = self._responses[self._index]
            self._index += 1
            return response

    def cancel(self) -> None:
        """Ask the model to stop; it decides whether it does. Its responses go on to the last. Returns at once."""
        if not self._finished and not self._channel.inherited:
            with suppress(wire.ClosedError):  # then it has stopped
                self._channel.send((wire.STOP, self._number))

    def receive(self) -> None:
        """Wait for one more response.

        Raises:
            TritonModelException: the server is gone, or it is not this process that made the request.
        """
        channel = self._channel
        if channel.inherited:
            raise TritonModelException(
                "The responses to a request can only be read in the process that executed it, not in its children."
            )
        try:
            answer = channel.receive()
            while answer[1] != self._number:
                answers.drop(answer)
                answer = channel.receive()
        except wire.ClosedError:
            self._finished = True
            channel.close()
            raise closed() from None
        self._responses.append(answers.open(answer) or InferenceResponse())
        if answer[3]:
            self._finished = True
            channels.put(channel)

    def leave(self, cancel: bool) -> None:
        """Want no more responses. Never waits, and takes no lock: garbage collection may call it anywhere."""
        if self._finished:
            return
        self._finished = True
        if not self._channel.inherited:
            try:
                self._channel.send((wire.LEAVE, self._number, cancel))
            except wire.ClosedError:
                self._channel.close()
                return
        channels.put(self._channel)

    def __del__(self) -> None:
        # A request that is executed for its effect alone runs to its end, as it does in the original
        self.leave(cancel=self._used)
