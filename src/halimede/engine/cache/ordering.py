"""Responses in the order of the requests, also if some of them come from the cache (`preserve_ordering`)."""

from collections import deque
from collections.abc import Callable
from functools import partial

from halimede.core.requests import InferRequest, InferResponse, Respond


class ResponseOrder:
    """Holds each response back until all requests before it are answered; errors do not wait."""

    def __init__(self, enqueue: Callable[[InferRequest], None]) -> None:
        """Requests are handed to `enqueue`, and their responses are held back."""
        self._enqueue = enqueue
        self._turns: deque[_Turn] = deque()

    def enqueue(self, request: InferRequest) -> None:
        """Have the request answered in its turn.

        Raises:
            UnavailableError: it cannot be; its `respond` is to be told so.
        """
        turn = _Turn(request.respond)
        self._turns.append(turn)
        request.respond = partial(self._answered, turn)
        self._enqueue(request)

    def _answered(self, turn: "_Turn", response: InferResponse | None, final: bool) -> None:
        """There is the only response to a request."""
        turn.answered = True
        if response is None or response.error is not None:
            turn.respond(response, final)
        else:
            turn.response = response
        turns = self._turns
        while turns and turns[0].answered:
            first = turns.popleft()
            if first.response is not None:
                first.respond(first.response, True)


class _Turn:
    """A request's place in the order.

    Attributes:
        respond: where its response goes.
        response: the response that is held back, if one is.
        answered: it has its response, sent or not.
    """

    __slots__ = ("answered", "respond", "response")

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.response: InferResponse | None = None
        self.answered = False
