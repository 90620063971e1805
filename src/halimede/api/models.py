"""A model of a server in this process: numpy in, numpy out."""

import asyncio
import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from halimede.api.embedded import EmbeddedServer
from halimede.api.responses import AsyncResponseIterator, InferenceResponse, ResponseIterator
from halimede.config.document import config_document
from halimede.config.signature import Signature
from halimede.core.datatypes import BYTES, Datatype
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    NotLoadedError,
    UnavailableError,
)
from halimede.core.requests import InferRequest, InferResponse, ParameterValue
from halimede.core.tasks import Tasks
from halimede.core.tensors import Array, Tensor
from halimede.engine.served_model import ServedModel
from halimede.frontends.descriptions import model_metadata, models_for_statistics, statistics

logger = logging.getLogger("halimede")

T = TypeVar("T")


class Model:
    """A model, whether it is loaded or not.

    Attributes:
        name: its name.
        version: its version; -1 for the highest that is ready.
    """

    def __init__(self, server: EmbeddedServer, name: str, version: int = -1) -> None:
        self._server = server
        self.name = name
        self.version = version
        self._demands = Tasks()

    def ready(self) -> bool:
        """Whether it can be called."""
        try:
            return self._server.ask(
                self._server.engine.lifecycle.model_ready(self.name, self.version)
            ).result()
        except (NotFoundError, UnavailableError):  # not there, or not loaded
            return False

    def metadata(self) -> dict[str, Any]:
        """Its versions, inputs and outputs.

        Raises:
            HalimedeError: it is not ready.
        """
        engine = self._server.engine
        return self._ask(lambda: model_metadata(engine.lifecycle, self.name, self.version))

    def config(self) -> dict[str, Any]:
        """Its configuration, completed.

        Raises:
            HalimedeError: it is not ready.
        """
        engine = self._server.engine
        return self._ask(lambda: config_document(engine.find(self.name, self.version).config))

    def statistics(self) -> dict[str, Any]:
        """What it has done so far: `model_stats`, an entry for each version.

        Raises:
            HalimedeError: it is not loaded.
        """
        engine = self._server.engine
        return self._ask(
            lambda: {
                "model_stats": [
                    statistics(each)
                    for each in models_for_statistics(engine.lifecycle, self.name, self.version)
                ]
            }
        )

    def infer(
        self, inputs: Mapping[str, Any], *, raise_on_error: bool = True, **request: Any
    ) -> ResponseIterator:
        """Send a request.

        Args:
            inputs: name → array, or what becomes one, such as a list of numbers or texts.
            raise_on_error: raise the errors of responses; otherwise they are in `InferenceResponse.error`.
            request: `outputs` (names wanted), `request_id`, `parameters`, `priority`, `timeout` in microseconds,
                `correlation_id`, `sequence_start`, `sequence_end`.

        Returns:
            The responses, as they come: one, or any number of a decoupled model.

        Raises:
            HalimedeError: the server does not run.
        """
        responses = ResponseIterator(raise_on_error)
        self._submit(inputs, request, responses)
        return responses

    def async_infer(
        self, inputs: Mapping[str, Any], *, raise_on_error: bool = True, **request: Any
    ) -> AsyncResponseIterator:
        """As `infer`, for `async for` in the event loop that runs."""
        responses = AsyncResponseIterator(raise_on_error, asyncio.get_running_loop())
        self._submit(inputs, request, responses)
        return responses

    def __call__(self, **inputs: Any) -> dict[str, Array]:
        """The outputs of the only response to a request with these inputs.

        Raises:
            HalimedeError: the model has failed.
            ValueError: there is not exactly one response.
        """
        responses = self.infer(inputs)
        first = next(responses, None)
        if first is None:
            raise ValueError(f"model '{self.name}' gave no response")
        if next(responses, None) is not None:
            responses.cancel()
            msg = f"model '{self.name}' streams its responses; iterate over infer(inputs) to get each of them"
            raise ValueError(msg)
        return first.outputs

    def _ask(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._server.ask(call()).result()

    def _submit(
        self,
        inputs: Mapping[str, Any],
        settings: Mapping[str, Any],
        responses: ResponseIterator | AsyncResponseIterator,
    ) -> None:
        arrays = {name: _array(value) for name, value in inputs.items()}
        request = _request(self.name, self.version, **settings)
        request.respond = _Answers(self.name, request, responses.put)
        responses.on_cancel = lambda: self._server.post(request.cancel)
        self._server.post(self._begin, request, arrays)

    def _begin(self, request: InferRequest, arrays: Mapping[str, Array]) -> None:
        """On the server's loop: give the request to the model."""
        try:
            engine = self._server.engine
            model = engine.find(self.name, self.version)
        except NotLoadedError:
            waiting = self._demands.submit(engine.demand(self.name, self.version))
            waiting.add_done_callback(lambda future: self._demanded(future, request, arrays))
            return
        except Exception as error:  # in a callback of the loop, nobody else would answer
            _respond_error(request, error)
            return
        self._run(model, request, arrays)

    def _demanded(
        self, future: "asyncio.Future[ServedModel]", request: InferRequest, arrays: Mapping[str, Array]
    ) -> None:
        try:
            model = future.result()
        except BaseException as error:  # as in `_begin`; the load may have been cancelled
            _respond_error(request, error)
        else:
            self._run(model, request, arrays)

    def _run(self, model: ServedModel, request: InferRequest, arrays: Mapping[str, Array]) -> None:
        limit = self._server.engine.inflight
        try:
            request.inputs = {name: _tensor(model.signature, name, each) for name, each in arrays.items()}
            if limit is not None:
                limit.admit(request)
        except Exception as error:  # as in `_begin`
            _respond_error(request, error)
            return
        request.model_version = model.version
        model.infer(request)


class _Answers:
    """Hands responses on to who waits for them."""

    def __init__(self, model: str, request: InferRequest, put: Callable[[InferenceResponse], None]) -> None:
        self._model = model
        self._request = request
        self._put = put

    def __call__(self, response: InferResponse | None, final: bool) -> None:
        """Take a response, on the server's loop."""
        outputs: dict[str, Array] = {}
        error = None
        parameters: Mapping[str, ParameterValue] = {}
        if response is not None:
            error, parameters = response.error, response.parameters or {}
            outputs = {name: tensor.array for name, tensor in response.tensors()}
        self._put(
            InferenceResponse(
                self._model,
                self._request.model_version,
                self._request.id,
                outputs,
                parameters,
                error,
                final,
                empty=response is None,
            )
        )


def _request(
    name: str,
    version: int,
    *,
    outputs: Sequence[str] = (),
    request_id: str = "",
    parameters: Mapping[str, ParameterValue] | None = None,
    priority: int = 0,
    timeout: int = 0,
    correlation_id: int | str = 0,
    sequence_start: bool = False,
    sequence_end: bool = False,
) -> InferRequest:
    return InferRequest(
        name,
        {},
        _unanswered,
        model_version=version,
        id=request_id,
        outputs=tuple(outputs),
        parameters=dict(parameters) if parameters else None,
        priority=priority,
        timeout_us=timeout,
        sequence_id=correlation_id,
        sequence_start=sequence_start,
        sequence_end=sequence_end,
    )


def _respond_error(request: InferRequest, error: BaseException) -> None:
    """Answer with an error. What nobody foresaw is logged."""
    if not isinstance(error, HalimedeError):
        logger.error("a request for model '%s' failed", request.model_name, exc_info=error)
        error = InternalError(f"the server failed: {error!r}")
    request.respond(InferResponse(error=error), True)


def _unanswered(response: InferResponse | None, final: bool) -> None:
    raise AssertionError("a request has its answers before it is sent")


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (str, bytes)):
        return np.array([value], np.object_)
    return np.asarray(value)


def _tensor(signature: Signature, name: str, array: Array) -> Tensor:
    """The tensor of an input; numbers are converted if no value is lost by that.

    Raises:
        InvalidArgumentError: the array is of another kind.
    """
    spec = signature.inputs.get(name)
    if spec is None:
        nearest = difflib.get_close_matches(name, signature.inputs, n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else f"it has {', '.join(signature.inputs)}"
        raise InvalidArgumentError(f"the model has no input '{name}'; {hint}")
    if array.ndim == 0:
        array = array.reshape(1)
    return Tensor.from_array(spec.datatype, np.ascontiguousarray(_converted(spec.datatype, name, array)))


def _converted(datatype: Datatype, name: str, array: Array) -> Array:
    dtype = datatype.numpy
    if datatype is BYTES:
        if array.dtype.kind not in "SUO":
            raise InvalidArgumentError(f"input '{name}' is BYTES; the array is {array.dtype}")
        encoded = np.empty(array.size, np.object_)
        encoded[:] = [
            each.encode() if isinstance(each, str) else bytes(each) for each in array.ravel().tolist()
        ]
        return encoded.reshape(array.shape)
    if array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InvalidArgumentError(
            f"input '{name}' is {datatype}; the array is {array.dtype}: convert it with .astype(np.{dtype.name})"
        )
    return array.astype(dtype)
