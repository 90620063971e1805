"""What all answers of text share: choices that run on a model, until each has ended, one fails, or nobody waits."""

from abc import ABC, abstractmethod

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.engine import Engine
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.streaming import ResponseStream
from halimede.frontends.openai.choice import Choice
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.requests import Requests
from halimede.frontends.restrictions import HeaderPattern


class TextAnswer(ABC):
    """The answer to one request. Lives on the event loop.

    Args:
        engine: what runs requests.
        exchange: what is answered.
        known: the model.
        choices: what comes of each of the model's requests.
        received_ns: when, on the engine's clock.
    """

    def __init__(
        self, engine: Engine, exchange: Exchange, known: KnownModel, choices: list[Choice], received_ns: int
    ) -> None:
        self._exchange = exchange
        self._choices = choices
        self._left = len(choices)
        self._requests = Requests(engine, exchange, known.model, received_ns, self._take)
        self._stream: ResponseStream | None = None
        self._over = False

    def _run(self, request_id: str, inputs: list[dict[str, Tensor]], pattern: HeaderPattern | None) -> None:
        """Have the model run it.

        Raises:
            HalimedeError: the request is answered with this.
        """
        try:
            self._requests.run(request_id, inputs, pattern)
        except HalimedeError:
            self._over = True
            raise

    def _take(self, number: int, response: InferResponse | None, final: bool) -> None:
        """A response for a choice."""
        if self._over:
            return
        if self._exchange.closed:
            self._give_up()
            return
        try:
            self._pass_on(number, response, final)
        except Exception as error:  # whoever responds has other requests to answer
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Answer with an error, and let the model make nothing more."""
        self._give_up()
        if isinstance(error, HalimedeError):
            self._fail(error)
        else:
            self._exchange.fail(error)

    def _give_up(self) -> None:
        self._over = True
        self._requests.cancel()

    def _end(self, stream: ResponseStream) -> None:
        self._exchange.on_disconnect = None
        stream.end()

    @abstractmethod
    def _pass_on(self, number: int, response: InferResponse | None, final: bool) -> None:
        """A response for a choice, while the client waits."""

    @abstractmethod
    def _fail(self, error: HalimedeError) -> None:
        """Tell the client. Nothing more comes."""
