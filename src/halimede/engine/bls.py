"""Business logic scripting: requests that models make of other models."""

from collections.abc import Callable, Iterable, Mapping

import orjson

from halimede.core.errors import HalimedeError, InternalError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.deadlocks import Waits
from halimede.engine.ensembles.served import ServedModel
from halimede.engine.model import Model
from halimede.workers.call_server import ModelCall
from halimede.workers.encoding import END_FLAG, START_FLAG
from halimede.workers.host import WorkerName

_GPU = 0
"""The kind of a preferred memory."""


class ModelCalls:
    """Runs the requests that models make. They pass through the scheduler as those of clients do.

    Responses are those of the model that is called. If it cannot even be asked, the response is an error that says
    `Model <name> - Error when running inference: …`.
    """

    def __init__(
        self, find: Callable[[str, int], ServedModel], now: Callable[[], int], gpus: tuple[int, ...] = ()
    ) -> None:
        """Calls of models.

        Args:
            find: the loaded model of a name and version, as `Engine.find`.
            now: the engine's clock.
            gpus: device numbers of the GPUs that the server may use.
        """
        self._find = find
        self._now = now
        self._gpus = gpus
        self._waits = Waits()

    def infer(self, call: ModelCall, caller: WorkerName | None = None) -> InferRequest | None:
        """Run a call, which is answered through its `respond`.

        Args:
            call: the call.
            caller: the instance that makes it, if it is known.

        Returns:
            The request that it became, to be cancelled or held back; None if it could not be made.
        """
        name = call.model_name
        try:
            model = self._find(name, call.model_version)
            if model.signature.decoupled and not call.decoupled:
                _refuse(call, _DECOUPLED.format(name))
                return None
            self._check_memory(call)
        except HalimedeError as error:
            _refuse(call, _FAILED.format(name, error.message))
            return None
        answer = _Answer(self._waits, call, caller)
        request = InferRequest(
            name,
            call.inputs,
            answer.respond,
            model_version=call.model_version,
            id=call.id,
            outputs=call.outputs,
            parameters=orjson.loads(call.parameters) if call.parameters else None,
            timeout_us=call.timeout_us,
            sequence_id=call.sequence_id,
            sequence_start=bool(call.flags & START_FLAG),
            sequence_end=bool(call.flags & END_FLAG),
            received_ns=self._now(),
        )
        if call.blocks and caller is not None and isinstance(model, Model):
            answer.waits = True
            if not self._waits.add(caller, call, request, _Instances(model)):
                _refuse(call, _FAILED.format(name, _ENDLESS.format(name)))
                return None
        model.infer(request)
        answer.submitted = True
        return request

    def _check_memory(self, call: ModelCall) -> None:
        """Raise an error if the call wants its outputs where the machine has no memory."""
        if call.preferred_memory is not None and call.preferred_memory[0] == _GPU and not self._gpus:
            msg = (
                "BackendMemory::Create, all allocation types failed: the preferred memory is GPU memory, and this "
                "server has no GPU; prefer TRITONSERVER_MEMORY_CPU, or leave out preferred_memory"
            )
            raise InternalError(msg)


_FAILED = "Model {} - Error when running inference: {}"

_DECOUPLED = (
    "Model {} is using the decoupled. The current BLS request call doesn't support models using the decoupled "
    "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
    "models.'"
)

_ENDLESS = (
    "the call would wait for ever: every instance of model '{}' waits, itself or through models that it calls, for "
    "this call. More instances (`instance_group`) of the models that call each other let it be served"
)


def _refuse(call: ModelCall, text: str) -> None:
    """Answer a call that cannot be made."""
    call.respond(InferResponse(error=InternalError(text)), True)


class _Answer:
    """Where the responses to one call go.

    Attributes:
        submitted: the model has taken the request.
        waits: the instance that made the call waits for the first response.
    """

    __slots__ = ("_all", "_call", "_caller", "submitted", "waits")

    def __init__(self, waits: Waits, call: ModelCall, caller: WorkerName | None) -> None:
        self.submitted = False
        self.waits = False
        self._all = waits
        self._call = call
        self._caller = caller

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the model."""
        call = self._call
        if self.waits:
            self.waits = False
            assert self._caller is not None
            self._all.remove(self._caller, call)
        if not self.submitted and response is not None and response.error is not None:
            _refuse(call, _FAILED.format(call.model_name, response.error.message))
        else:
            call.respond(response, final)


class _Instances:
    """The instances of a model, for those that look for circles."""

    def __init__(self, model: Model) -> None:
        self.name = model.name
        self.decoupled = model.signature.decoupled
        self._model = model

    def requests(self) -> Mapping[WorkerName, Iterable[InferRequest]]:
        """Each instance, and the requests whose execution there is not over."""
        model = self._model
        return {
            WorkerName(model.name, model.version, entry.spec.name): entry.instance.requests
            for entry in model.loaded.instances
            if not entry.passive
        }
