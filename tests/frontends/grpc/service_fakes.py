"""An engine and a call that tests hold in their hands."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from halimede.config.signature import Signature, TensorSpec
from halimede.core import datatypes
from halimede.core.clock import VirtualClock
from halimede.core.datatypes import Datatype
from halimede.core.errors import CancelledError, HalimedeError, NotFoundError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Buffer
from halimede.engine.tracing.settings import TraceConfig
from halimede.engine.tracing.tracing import Tracing
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class FakeCall:
    """What the transport gives to handlers; it keeps what is sent."""

    def __init__(self, path: str = INFER, metadata: dict[str, str | bytes] | None = None) -> None:
        self.path = path
        self.metadata = metadata or {}
        self.peer = "127.0.0.1"
        self.connection = SimpleNamespace(client="127.0.0.1:5")
        self.cancelled = False
        self.writable = True
        self.paused = False
        self.messages: list[bytes] = []
        self.parts: list[list[Buffer]] = []
        self.status: int | None = None
        self.text = ""
        self.on_message: Callable[[memoryview], None] | None = None
        self.on_half_close: Callable[[], None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

    def begin(self, request: InferRequest, version: int) -> None:
        self.on_cancel = request.cancel

    def send(self, parts: Sequence[Buffer]) -> None:
        assert self.status is None, "sent after the end"
        self.parts.append(list(parts))
        self.messages.append(b"".join(parts))

    def finish(self, status: int = 0, message: str = "") -> None:
        assert self.status is None, "ended twice"
        self.status, self.text = status, message

    def reply(self, parts: Sequence[Buffer]) -> None:
        self.send(parts)
        self.finish()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    @property
    def ended(self) -> bool:
        return self.status is not None

    # what a client does

    def receive(self, message: Any) -> None:
        assert self.on_message is not None
        encoded = message if isinstance(message, bytes) else message.SerializeToString()
        self.on_message(memoryview(encoded))

    def half_close(self) -> None:
        assert self.on_half_close is not None
        self.on_half_close()

    def cancel(self) -> None:
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()

    def drain(self) -> None:
        self.writable = True
        assert self.on_writable is not None
        self.on_writable()


class FakeModel:
    """A model whose requests wait until the test answers them; or, with `answer`, are answered at once."""

    def __init__(
        self,
        name: str = "identity",
        *,
        version: int = 1,
        decoupled: bool = False,
        datatype: Datatype = datatypes.FP32,
        max_batch_size: int = 0,
        labels: dict[str, list[str]] | None = None,
        answer: Callable[[InferRequest], None] | None = None,
    ) -> None:
        self.name = self.identifier = name
        self.version = version
        spec = TensorSpec("OUTPUT0", datatype, (-1,), (-1,))
        self.signature = Signature(
            max_batch_size,
            {"INPUT0": TensorSpec("INPUT0", datatype, (-1,), (-1,))},
            {"OUTPUT0": spec},
            decoupled,
        )
        self.labels = labels or {}
        self.requests: list[InferRequest] = []
        self._answer = answer

    def infer(self, request: InferRequest) -> None:
        self.requests.append(request)
        request.on_cancel = _refuse
        if self._answer is not None:
            self._answer(request)


def _refuse(request: InferRequest) -> None:
    request.respond(InferResponse(error=CancelledError("the request was cancelled")), True)


def echo(request: InferRequest) -> None:
    """Answer with the first input as OUTPUT0."""
    tensor = next(iter(request.inputs.values()))
    request.respond(InferResponse({"OUTPUT0": tensor}), True)


class FakeEngine:
    """Finds the models that it is made with."""

    def __init__(self, *models: FakeModel, **lifecycle: Any) -> None:
        self.clock = VirtualClock()
        self.inflight = None
        self.lifecycle = SimpleNamespace(
            on_readiness=[], live=True, ready=True, check=lambda: None, **lifecycle
        )
        self.tracing = Tracing(TraceConfig(), None)
        self._models = {model.name: model for model in models}

    def find(self, name: str, version: int = -1) -> FakeModel:
        model = self._models.get(name)
        if model is None:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        if version not in (-1, model.version):
            raise NotFoundError(f"Request for unknown model: '{name}' version {version} is not found")
        return model


def infer_request(
    data: bytes = b"\0\0\x80?",
    *,
    model: str = "identity",
    version: str = "",
    identifier: str = "",
    datatype: str = "FP32",
    shape: Sequence[int] = (1,),
) -> ModelInferRequest:
    """A request with one raw tensor."""
    request = ModelInferRequest(model_name=model, model_version=version, id=identifier)
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    request.raw_input_contents.append(data)
    return request


def status_of(error: type[HalimedeError]) -> int:
    """The gRPC status of a kind of error."""
    return error.code.grpc_status
