"""In a front end: the models of the engine, so that requests are read, and responses written, here.

What is rare is left to the engine's process, which is asked for the whole answer: `NotHereError`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.clock import Clock
from halimede.core.datatypes import BY_NUMBER, INVALID
from halimede.core.errors import HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse, ParameterValue, RepeatingResponse
from halimede.core.tensors import Tensor
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.responses import Status
from halimede.frontends.relay import wire
from halimede.frontends.relay.forms import Form, Layout
from halimede.frontends.relay.link import Link, Payload
from halimede.workers.error_numbers import ERRORS

ModelRow = tuple[int, str, int, bool, bytes, dict[str, list[str]]]
"""Of a loaded version of a model: its handle, name, version, whether that is the highest, configuration and labels."""

SentTensor = tuple[str, int, tuple[int, ...], Payload]
"""A tensor between processes: its name, the number of its datatype, its shape, its bytes."""


class NotHereError(Exception):
    """The engine's process has to answer the whole request."""


class RemoteModel:
    """A loaded version of a model of the engine.

    Attributes:
        name: what clients call the model.
        version: the version.
        signature: what it takes and gives.
        labels: output → class labels.
        infer: has the engine run a request.
    """

    def __init__(self, row: ModelRow, infer: "Callable[[RemoteModel, InferRequest], None]") -> None:
        self.handle, self.name, self.version, _, config, self.labels = row
        self.config = ModelConfig.FromString(config)
        self.signature = Signature.from_config(self.config)
        self._infer = infer

    def infer(self, request: InferRequest) -> None:
        """Have the engine run the request, and answer it through its `respond`."""
        self._infer(self, request)


class _Untraced:
    """In place of what decides which requests are traced: the engine's process answers those."""

    active: Final = False


class _Single:
    """In place of a form, of a request that was not asked by one."""

    def answer(self, *_: object) -> None:
        """Never called: its outputs come with their names."""
        raise AssertionError

    def respond(self, request: InferRequest, _identifier: bytes, response: InferResponse) -> None:
        """Answer."""
        request.on_cancel = None
        request.respond(response, True)

    def relay(self, request: InferRequest, relay: Callable[[], None]) -> None:
        """Have the engine's process answer the whole."""
        request.on_cancel = None
        relay()


_SINGLE: Final = _Single()

_Asked = tuple[Form | _Single, Any, bytes, Any]
"""A request that the engine runs: how it is answered, its client, its id, and what it takes to have it relayed."""


class RemoteModels:
    """Those that front ends may use. Stands in for `Engine` in what reads requests. Lives on the event loop.

    Attributes:
        clock: the time.
        tracing: says that nothing is traced here.
        inflight: None: the engine counts.
        relay: has the engine's process answer the whole of what is read now.
        call: of gRPC, that is read now; None for a request over HTTP.
        protocol: of what is read now.
        route: the same, as metrics name it.
        on_change: called when models have come or gone.
        traced: whether the engine may trace requests.
    """

    inflight: Final = None

    def __init__(self, link: Link, clock: Clock, numbers: Iterator[int]) -> None:
        """No models yet; `numbers` are those of calls to the engine's process."""
        self.clock = clock
        self.tracing = _Untraced()
        self.relay: Callable[[], None] = _unset
        self.call: Call | None = None
        self.protocol = ""
        self.route = ""
        self.on_change: list[Callable[[], None]] = []
        self.traced = False
        self._link = link
        self._now = clock.now
        self._models: dict[tuple[str, int], RemoteModel] = {}
        self._numbers = numbers
        self._asked: dict[int, _Asked] = {}
        self._layouts: dict[int, Layout] = {}

    def handlers(self) -> dict[int, Callable[..., None]]:
        """What takes items of the engine."""
        return {
            wire.MODELS: self._learn,
            wire.LAYOUT: self._learn_layout,
            wire.RELAYOUT: self._layouts.clear,
            wire.ANSWER: self._answer,
            wire.RESULT: self._result,
            wire.NOT_HERE: self._not_here,
            wire.TIMES: self._learn_times,
            wire.TRACED: self._learn_traced,
        }

    def _learn(self, gone: Sequence[tuple[str, int]], rows: Sequence[ModelRow]) -> None:
        """These models are gone, and these have come, or are the highest of their name or not any more."""
        models = self._models
        for name, version in gone:
            model = models.pop((name, version), None)
            if models.get((name, -1)) is model:
                del models[name, -1]
        for row in rows:
            _, name, version, is_latest, _, _ = row
            models[name, version] = model = RemoteModel(row, self._ask)
            if is_latest:
                models[name, -1] = model
        for callback in self.on_change:
            callback()

    def find(self, name: str, version: int = -1) -> Any:
        """The loaded model of that name; the highest ready version for -1.

        Raises:
            NotHereError: it is not known here.
        """
        model = self._models.get((name, version))
        if model is None:
            raise NotHereError
        return model

    def end_reading(self) -> None:
        """What was read is relayed, asked or answered: hold it no more."""
        self.relay = _unset
        self.call = None

    def _ask(self, model: RemoteModel, request: InferRequest) -> None:
        if any(tensor.datatype is INVALID for tensor in request.inputs.values()):
            raise NotHereError
        link = self._link
        parameters = request.parameters
        number = next(self._numbers)
        inputs = [
            (name, tensor.datatype.number, tensor.shape, link.payload(tensor.data))
            for name, tensor in request.inputs.items()
        ]
        scheduling = None
        if (
            request.priority
            or request.timeout_us
            or request.sequence_id
            or request.sequence_start
            or request.sequence_end
        ):
            scheduling = (
                request.priority,
                request.timeout_us,
                request.sequence_id,
                request.sequence_start,
                request.sequence_end,
            )
        self._asked[number] = _SINGLE, request, b"", self.relay
        self.relay = _unset  # it holds what it relays
        request.on_cancel = partial(self._gone, number, self.call)
        link.post(
            wire.INFER,
            number,
            self.protocol,
            self.route,
            model.handle,
            request.id,
            inputs,
            request.outputs,
            orjson.dumps(parameters) if parameters else b"",
            scheduling,
            request.received_ns,
        )

    def declare(
        self,
        protocol: str,
        route: str,
        model: RemoteModel,
        inputs: Sequence[tuple[str, int, tuple[int, ...]]],
        outputs: tuple[str, ...],
        parameters: Mapping[str, ParameterValue] | None,
        scheduling: tuple[Any, ...] | None,
    ) -> int:
        """Make a form known to the engine's process: its number.

        Args:
            protocol: how its requests come.
            route: the same, as metrics name it.
            model: which they are for.
            inputs: name, number of the datatype and shape of each.
            outputs: names of those wanted, () for all.
            parameters: custom parameters, or None.
            scheduling: priority, timeout, and id, start and end of the sequence; None if they say nothing of these.
        """
        number = next(self._numbers)
        encoded = orjson.dumps(parameters) if parameters else b""
        plain = None if scheduling is None else tuple(scheduling)  # a named tuple cannot be sent
        self._link.post(wire.FORM, number, protocol, route, model.handle, inputs, outputs, encoded, plain)
        return number

    def forget(self, forms: list[int]) -> None:
        """No requests of these forms come any more."""
        if forms:
            self._link.post(wire.FORGET, forms)

    def ask(
        self,
        form: Form,
        client: object,
        identifier: bytes,
        tensors: Iterable[memoryview],
        message: memoryview | None = None,
    ) -> Callable[[], None]:
        """Have the engine run a request of a form: what cancels it.

        Args:
            form: the form.
            client: what the form answers.
            identifier: the request's id, b"" for none.
            tensors: the bytes of each input.
            message: what it takes, besides the client, to have the request relayed.

        Raises:
            MemoryError: there is no shared memory for the tensors.
        """
        link = self._link
        payloads = map(link.payload, tensors)
        number = next(self._numbers)
        link.post(wire.ASK, number, form.number, identifier, self._now(), *payloads)
        self._asked[number] = form, client, identifier, message
        return partial(self._gone, number, client)

    def _gone(self, number: int, client: object, _request: InferRequest | None = None) -> None:
        """The client of a request is gone, or its deadline has passed."""
        if self._asked.pop(number, None) is not None:
            status = client.status if isinstance(client, Call) else Status.CANCELLED
            self._link.post(wire.GONE, number, int(status))

    def _learn_layout(self, number: int, outputs: Sequence[tuple[str, int, tuple[int, ...], int]]) -> None:
        self._layouts[number] = Layout(
            [(name, BY_NUMBER[datatype], shape, size) for name, datatype, shape, size in outputs]
        )

    def _answer(self, number: int, layout: int, *payloads: Payload) -> None:
        parts = self._link.all_bytes_of(payloads)
        asked = self._asked.pop(number, None)
        if asked is not None:
            form, client, identifier, _ = asked
            form.answer(client, identifier, self._layouts[layout], parts)

    def _result(
        self,
        number: int,
        outputs: Sequence[SentTensor],
        parameters: bytes,
        error: tuple[int, str, int] | None,
    ) -> None:
        bytes_of = self._link.bytes_of
        tensors = [
            (name, Tensor(BY_NUMBER[datatype], shape, bytes_of(payload)))
            for name, datatype, shape, payload in outputs
        ]
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        form, client, identifier, _ = asked
        if error is not None:
            form.respond(client, identifier, InferResponse(error=error_of(*error)))
            return
        named = dict(tensors)
        custom = orjson.loads(parameters) if parameters else None
        if len(named) == len(tensors):
            form.respond(client, identifier, InferResponse(named, custom))
        else:
            form.respond(client, identifier, RepeatingResponse(tensors, custom))

    def _learn_times(self, number: int, batch_size: int, queued_ns: int, started_ns: int, *took: int) -> None:
        """What a request took, whose result comes next."""
        asked = self._asked.get(number)
        if asked is None:
            return
        request = asked[1]
        assert isinstance(request, InferRequest), "what is logged is asked without a form"
        request.batch_size, request.queued_ns, request.started_ns = batch_size, queued_ns, started_ns
        if request.on_compute is not None and took[0] >= 0:
            request.on_compute(*took)

    def _learn_traced(self, traced: bool) -> None:
        self.traced = traced

    def _not_here(self, number: int) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            form, client, _, message = asked
            form.relay(client, message)

    def give_up(self, error: HalimedeError) -> None:
        """The engine's process is gone."""
        asked, self._asked = self._asked, {}
        for form, client, identifier, _ in asked.values():
            form.respond(client, identifier, InferResponse(error=error))


def error_of(number: int, text: str, retry_after_s: int) -> HalimedeError:
    """The error that a model's run ended with."""
    kind: type[HalimedeError] = ERRORS[number]
    return UnavailableError(text, retry_after_s=retry_after_s) if retry_after_s else kind(text)


def _unset() -> None:
    raise NotHereError
