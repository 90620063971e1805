"""The responses of a decoupled model to a call by one in the server's process."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition

from halimede.core.requests import InferRequest, InferResponse
from halimede.workers.in_server.runtime import ServerRuntime
from halimede_worker.calls.calls import closed
from halimede_worker.calls.iterators import ResponseIterator
from halimede_worker.errors import TritonModelException
from halimede_worker.responses import InferenceResponse

MAX_WAITING = 64
"""The model that is called waits while so many of its responses were not taken."""


class Responses:
    """Responses on their way from the loop to who reads them.

    Attributes:
        begun: there was one, or the end.
    """

    def __init__(
        self, runtime: ServerRuntime, received: Callable[[InferResponse], InferenceResponse]
    ) -> None:
        """None yet; `received` makes of each what models see."""
        self.begun = False
        self._runtime = runtime
        self._received = received
        self._waiting: deque[tuple[InferenceResponse, bool]] = deque()
        self._changed = Condition()
        self._request: InferRequest | None = None
        self._over = False
        self._wanted = True

    def began(self, request: InferRequest | None) -> None:
        """The call became that request. On the loop."""
        if not self._over:
            self._request = request

    def take(self, response: InferResponse | None, final: bool) -> None:
        """Take a response. On the loop."""
        self.begun = True
        if final:
            self._over = True
            self._request = None
        if not self._wanted:
            return
        received = InferenceResponse() if response is None else self._received(response)
        with self._changed:
            self._waiting.append((received, final))
            self._changed.notify()
        if len(self._waiting) >= MAX_WAITING and self._request is not None:
            self._request.congest()

    def next(self) -> tuple[InferenceResponse, bool]:
        """The next response, and whether it is the last; waits for it.

        Raises:
            TritonModelException: it cannot come any more.
        """
        runtime = self._runtime
        if not self._waiting and runtime.on_loop:
            runtime.run_soon(lambda: bool(self._waiting))
        with self._changed:
            while not self._waiting:
                if not self._changed.wait(1.0) and runtime.services is None:
                    raise closed()
            response = self._waiting.popleft()
        if len(self._waiting) == MAX_WAITING // 2 and not response[1]:
            runtime.post(self._drain)
        return response

    def cancel(self) -> None:
        """Ask the model to stop."""
        self._runtime.post(self._stop, True)

    def leave(self, *, cancel: bool) -> None:
        """Nobody wants the responses any more."""
        self._wanted = False
        self._waiting.clear()
        self._runtime.post(self._leave, cancel)

    def _leave(self, cancel: bool) -> None:
        self._stop(cancel)
        self._drain()

    def _stop(self, cancel: bool) -> None:
        if cancel and self._request is not None:
            self._request.cancel()

    def _drain(self) -> None:
        if self._request is not None:
            self._request.drain()


class ServerResponseIterator(ResponseIterator):
    """The responses, as models see them."""

    __module__ = "c_python_backend_utils"

    __slots__ = ("_source",)

    def __init__(self, source: Responses) -> None:
        super().__init__(None, 0)  # type: ignore[arg-type] # there is no socket
        self._source = source

    def cancel(self) -> None:
        """Ask the model to stop; it decides whether it does. Its responses go on to the last. Returns at once."""
        if not self._finished:
            self._source.cancel()

    def receive(self) -> None:
        """Wait for one more response.

        Raises:
            TritonModelException: it cannot come any more.
        """
        response, final = self._source.next()
        self._responses.append(response)
        self._finished = final

    def leave(self, cancel: bool) -> None:
        """Want no more responses. Never waits."""
        if not self._finished:
            self._finished = True
            with suppress(TritonModelException):  # the server is gone
                self._source.leave(cancel=cancel)


ServerResponseIterator.__name__ = ResponseIterator.__name__
