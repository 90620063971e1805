"""How many requests of clients may be in flight at once, for all models together (`--max-inflight-requests`)."""

from functools import partial

from halimede.core.errors import UnavailableError
from halimede.core.requests import InferRequest, InferResponse, Respond


class InflightLimit:
    """Counts the requests of clients from when a model gets them to their final response. Lives on the event loop.

    Attributes:
        most: so many may be in flight.
        count: so many are.
        refused: requests that were one too many.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self.refused = 0

    def admit(self, request: InferRequest) -> None:
        """Count the request, which a model is about to get.

        Raises:
            UnavailableError: there are too many.
        """
        self.check(request)
        self.count += 1
        request.respond = partial(self._respond, request.respond)

    def check(self, request: InferRequest) -> None:
        """Refuse the request if it is one too many; otherwise `admit`, in the same turn of the loop, takes it.

        Raises:
            UnavailableError: there are too many.
        """
        if self.count >= self.most:
            self.refused += 1
            msg = f"{request.prefix}the server has {self.most} requests in flight, as many as it may; try again later"
            raise UnavailableError(msg, retry_after_s=1)

    def _respond(self, respond: Respond, response: InferResponse | None, final: bool) -> None:
        if final:
            self.count -= 1
        respond(response, final)
