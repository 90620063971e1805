"""Ensembles of models that answer when a test says so, on a virtual clock."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from halimede.backends.base import ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.signature import Signature
from halimede.config.validate import validate as validate_config
from halimede.core.clock import VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError, NotFoundError
from halimede.core.requests import InferRequest, InferResponse, ParameterValue, Respond
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.model import EnsembleModel
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.served_model import InstanceActivity, ServedModel
from halimede.engine.statistics import ModelStatistics
from halimede.engine.validation import validate

Answer = Callable[[InferRequest], None]


def parse(text: str) -> ModelConfig:
    """A normalised and valid configuration."""
    config = ModelConfig()
    text_format.Parse(text, config)
    normalise(config)
    validate_config(config)
    return config


def ports(kind: str, names: str, dims: str = "-1", datatype: str = "TYPE_FP32") -> str:
    """Inputs or outputs of those names; a name that ends with `?` is optional."""
    return " ".join(
        f'{kind} {{ name: "{name.rstrip("?")}" data_type: {datatype} dims: [ {dims} ] '
        f"{'optional: true' if name.endswith('?') else ''} }}"
        for name in names.split()
    )


def model(
    name: str,
    inputs: str = "IN",
    outputs: str = "OUT",
    *,
    decoupled: bool = False,
    batch: int = 0,
    dims: str = "-1",
    out_dims: str = "",
    datatype: str = "TYPE_FP32",
) -> ModelConfig:
    """The configuration of a model that steps may name."""
    return parse(
        f'name: "{name}" backend: "fake" max_batch_size: {batch} '
        f"{ports('input', inputs, dims, datatype)} {ports('output', outputs, out_dims or dims, datatype)} "
        f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}"
    )


def step(name: str, inputs: str, outputs: str, version: int = -1) -> str:
    """A step; `inputs` and `outputs` are pairs ``PORT=tensor``."""
    maps = [
        f'{kind} {{ key: "{port}" value: "{tensor}" }}'
        for kind, pairs in (("input_map", inputs), ("output_map", outputs))
        for port, tensor in (pair.split("=") for pair in pairs.split())
    ]
    return f'step {{ model_name: "{name}" model_version: {version} {" ".join(maps)} }}'


def ensemble(
    *steps: str,
    inputs: str = "X",
    outputs: str = "Y",
    batch: int = 0,
    dims: str = "-1",
    inflight: int = 0,
    name: str = "e",
) -> ModelConfig:
    """The configuration of an ensemble of those steps."""
    return parse(
        f'name: "{name}" platform: "ensemble" max_batch_size: {batch} '
        f"{ports('input', inputs, dims)} {ports('output', outputs, dims)} "
        f"ensemble_scheduling {{ {' '.join(steps)} max_inflight_requests: {inflight} }}"
    )


def tensor(*values: float) -> Tensor:
    """An FP32 vector."""
    return Tensor.from_array(FP32, np.array(values, np.float32))


def values(tensor: Tensor) -> list[float]:
    """What `tensor` was given."""
    return [float(value) for value in tensor.array.reshape(-1)]


class FakeModel:
    """A model whose requests wait until the test answers them, unless it has an `answer` of its own.

    Attributes:
        requests: those that it has not answered, in order of arrival.
        seen: all that it ever had.
    """

    pending = inflight = 0
    healthy = True
    takes_device_tensors = False

    def __init__(self, config: ModelConfig, answer: Answer | None = None) -> None:
        self.name = self.identifier = config.name
        self.version = 3
        self.directory = Path(config.name)
        self.config = config
        self.signature = Signature.from_config(config)
        self.labels: dict[str, list[str]] = {}
        self.statistics = ModelStatistics()
        self.requests: list[InferRequest] = []
        self.seen: list[InferRequest] = []
        self._answer = answer

    sequences = 0

    def activity(self) -> tuple[InstanceActivity, ...]:
        return ()

    def continues(self, request: InferRequest) -> bool:
        return False

    def succeed(self, predecessor: ServedModel) -> None:
        raise AssertionError

    def end_sequences(self) -> None:
        raise AssertionError

    async def ready(self) -> tuple[bool, str]:
        return True, ""

    def infer(self, request: InferRequest) -> None:
        self.seen.append(request)
        try:
            validate(request, self.signature)
        except HalimedeError as error:
            request.respond(InferResponse(error=error), True)
            return
        self.requests.append(request)
        if self._answer is not None:
            self.requests.remove(request)
            self._answer(request)

    def send(
        self,
        *numbers: float,
        index: int = 0,
        final: bool | None = None,
        parameters: dict[str, ParameterValue] | None = None,
        **outputs: Tensor | None,
    ) -> None:
        """Answer a request with OUT of those values, or with `outputs`; finally, unless the model is decoupled."""
        request = self.requests[index]
        tensors = {name: value for name, value in outputs.items() if value is not None}
        if not outputs:
            tensors = {"OUT": tensor(*numbers)}
        final = not self.signature.decoupled if final is None else final
        if final:
            self.requests.pop(index)
        request.respond(InferResponse(tensors, parameters), final)

    def end(self, index: int = 0) -> None:
        """End a decoupled request."""
        self.requests.pop(index).respond(None, True)

    def fail(self, error: HalimedeError, index: int = 0, *, final: bool = True) -> None:
        """Answer a request with an error."""
        request = self.requests.pop(index) if final else self.requests[index]
        request.respond(InferResponse(error=error), final)

    def stop(self) -> None:
        """Requests of tests come when the test likes."""

    async def drained(self) -> None:
        """It has no requests of its own."""

    async def close(self) -> None:
        """It holds nothing."""


class Bench:
    """An ensemble, the models of its steps, and what it answered.

    Attributes:
        models: name → model.
        answers: the responses, each with whether it was the final one.
    """

    def __init__(self, config: ModelConfig, *models: "FakeModel | ModelConfig | EnsembleModel") -> None:
        self.clock = VirtualClock()
        self.clock.advance(1_000)
        self.models: dict[str, ServedModel] = {
            each.name: (FakeModel(each) if isinstance(each, ModelConfig) else each) for each in models
        }
        self.loop = asyncio.new_event_loop()
        self.ensemble = self.make(config)
        self.answers: list[tuple[InferResponse | None, bool]] = []

    def make(self, config: ModelConfig, labels: dict[str, list[str]] | None = None) -> EnsembleModel:
        """An ensemble of the models."""
        plan = EnsemblePlan.from_config(config, lambda name, version: self.models[name].config)
        source = ModelSource(config.name, 1, Path("/nonexistent"), config)
        return EnsembleModel(source, plan, self.find, self.clock, self.loop, labels or {}, ModelStatistics())

    def find(self, name: str, version: int) -> ServedModel:
        """The model of that name."""
        if name not in self.models:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return self.models[name]

    def fake(self, name: str) -> FakeModel:
        """One of the models."""
        found = self.models[name]
        assert isinstance(found, FakeModel)
        return found

    def infer(
        self,
        inputs: dict[str, Tensor] | None = None,
        outputs: Sequence[str] = (),
        respond: Respond | None = None,
        **settings: object,
    ) -> InferRequest:
        """Send the ensemble a request, by default with X = [1]; its responses are in `answers` or go to `respond`."""
        request = InferRequest(
            "e",
            {"X": tensor(1)} if inputs is None else inputs,
            respond or self._respond,
            outputs=tuple(outputs),
            id=str(settings.pop("id", "")),
        )
        for name, value in settings.items():
            setattr(request, name, value)
        self.ensemble.infer(request)
        return request

    def _respond(self, response: InferResponse | None, final: bool) -> None:
        assert not any(final for _, final in self.answers), "a response after the final one"
        self.answers.append((response, final))

    @property
    def response(self) -> InferResponse:
        """The only response, which must have come, and not have been an error."""
        ((response, final),) = self.answers
        assert final
        assert response is not None
        assert response.error is None, response.error
        return response

    @property
    def error(self) -> HalimedeError:
        """The error that ended the request."""
        response, final = self.answers[-1]
        assert final
        assert response is not None
        assert response.error is not None
        return response.error

    @property
    def finals(self) -> list[bool]:
        """Of each response so far, whether it was the final one."""
        return [final for _, final in self.answers]

    @property
    def stream(self) -> list[list[float]]:
        """Values of output Y of all responses so far."""
        return [
            values(response.outputs["Y"])
            for response, _ in self.answers
            if response is not None and not response.error
        ]

    @property
    def ended(self) -> bool:
        """Whether the final response has come."""
        return bool(self.answers) and self.answers[-1][1]

    def close(self) -> None:
        """Close the loop."""
        self.loop.close()
