"""What all answers of text share: choices that run on a model, until each has ended, one fails, or nobody waits."""

from abc import ABC, abstractmethod
from collections import deque
from functools import partial

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.engine import Engine
from halimede.frontends.http.answers import AnswerInSteps
from halimede.frontends.http.transport.exchange import Exchange
from halimede.frontends.http.transport.streaming import ResponseStream
from halimede.frontends.openai.choice import NOTHING_READ, READ_IN_STEPS, Choice, Read
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
        outputs = known.profile.outputs
        self._may_be_long = frozenset(spec.name for field, spec in outputs.items() if field in READ_IN_STEPS)
        self._later: deque[tuple[int, InferResponse | None, bool]] | None = None  # while one before is read

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
            if self._later is not None:
                self._later.append((number, response, final))
                self._requests.congest()
            elif (
                response is None
                or self._may_be_long.isdisjoint(response.outputs)
                or not self._is_read_in_steps(number, response, final)
            ):
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

    def _is_read_in_steps(self, number: int, response: InferResponse, final: bool) -> bool:
        """Whether a response has to wait until its JSON is read; the model waits too."""
        reading = self._choices[number].read_in_steps(response)
        if reading is None:
            return False
        self._later = deque()
        self._requests.congest()
        AnswerInSteps(
            self._exchange,
            reading,
            partial(self._was_read, number, response, final),
            lambda _, error: self._failed(error),
        ).take()
        return True

    def _was_read(self, number: int, response: InferResponse, final: bool, read: Read) -> None:
        """Go on with a response whose JSON is read, and with those that have come meanwhile."""
        later, self._later = self._later, None
        assert later is not None, "what comes while JSON is read waits"
        try:
            self._pass_on(number, response, final, read)
        except Exception as error:  # in a callback of the loop, nobody else would answer
            self._failed(error)
        self._take_up(later)

    def _take_up(self, later: deque[tuple[int, InferResponse | None, bool]]) -> None:
        while later and self._later is None:
            self._take(*later.popleft())
        if self._later is not None:
            self._later += later
        elif not self._over:
            self._room()

    def _room(self) -> None:
        """Let the model go on, if there is room."""
        if self._stream is None or not self._stream.full:
            self._requests.drain()

    def _give_up(self) -> None:
        self._over = True
        self._requests.cancel()

    def _end(self, stream: ResponseStream) -> None:
        self._exchange.on_disconnect = None
        stream.end()

    @abstractmethod
    def _pass_on(
        self, number: int, response: InferResponse | None, final: bool, read: Read = NOTHING_READ
    ) -> None:
        """A response for a choice, while the client waits; its JSON that was read in steps."""

    @abstractmethod
    def _fail(self, error: HalimedeError) -> None:
        """Tell the client. Nothing more comes."""
