"""Business logic scripting: requests that models make of other models."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import orjson

from halimede.core.errors import HalimedeError, InternalError, NotLoadedError
from halimede.core.requests import InferRequest, InferResponse, NestedRequest
from halimede.core.tasks import Tasks
from halimede.engine.calls.deadlocks import Waits
from halimede.engine.calls.loans import Loans
from halimede.engine.model import Model
from halimede.engine.served_model import ServedModel
from halimede.engine.tracing.recording import trace_caused_request
from halimede.workers.call_server import ModelCall
from halimede.workers.encoding import END_FLAG, START_FLAG
from halimede.workers.host import WorkerName

Demand = Callable[[str, int, str, bool], Awaitable[ServedModel]]
"""``demand(name, version, caller, is_loading)`` has a model loaded that another one calls, and gives it."""

_GPU = 0
"""The kind of a preferred memory."""


class ModelCalls:
    """Runs the requests that models make. They pass through the scheduler as those of clients do.

    Responses are those of the model that is called. If it cannot even be asked, the response is an error that says
    `Model <name> - Error when running inference: …`.
    """

    def __init__(
        self,
        find: Callable[[str, int], ServedModel],
        now: Callable[[], int],
        gpus: tuple[int, ...] = (),
        name_in_server: Callable[[str, str], str] | None = None,
        demand: Demand | None = None,
        loans: Loans | None = None,
    ) -> None:
        """Calls of models.

        Args:
            find: the loaded model of a name and version, as `Engine.find`.
            now: the engine's clock.
            gpus: device numbers of the GPUs that the server may use.
            name_in_server: the name in the server of a model, by what another one calls it and the name of that;
                None if the names are the same.
            demand: has models loaded that `find` says are not; None if it never does.
            loans: what callers lend to the models that they call; None without a rate limiter.
        """
        self._find = find
        self._now = now
        self._gpus = gpus
        self._name_in_server = name_in_server
        self._demand = demand
        self._loans = loans
        self._waits = Waits()
        self._tasks = Tasks()

    def infer(
        self, call: ModelCall, caller: WorkerName | None = None, *, is_loading: bool = False
    ) -> InferRequest | None:
        """Run a call, which is answered through its `respond`.

        Args:
            call: the call.
            caller: the instance that makes it, if it is known.
            is_loading: the caller is still being loaded itself.

        Returns:
            The request that it became, to be cancelled or held back; None if it could not be made.
        """
        name = call.model_name
        if caller is not None and self._name_in_server is not None:
            name = self._name_in_server(name, caller.model)
        answer = _Answer(self._waits, self._loans, call, caller)
        request = NestedRequest(
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
        try:
            model = self._find(name, call.model_version)
        except NotLoadedError as error:
            if self._demand is not None:
                its_name = "" if caller is None else caller.model
                found = self._demand(name, call.model_version, its_name, is_loading)
                later = self._submit_later(answer, request, found)
                self._tasks.start(f"a call of model '{name}'", later)
                return request
            _refuse(call, _not_ready(name, error))
            return None
        except HalimedeError as error:
            _refuse(call, _not_ready(name, error))
            return None
        try:
            return request if self._submit(answer, request, model) else None
        except HalimedeError as error:
            _refuse(call, _FAILED.format(name, error.message))
        return None

    def answers_here(self, name: str, version: int, caller: WorkerName) -> bool:
        """Whether a call of the model from the loop would be answered before it returns."""
        if self._name_in_server is not None:
            name = self._name_in_server(name, caller.model)
        try:
            model = self._find(name, version)
        except HalimedeError:
            return False
        return isinstance(model, Model) and model.answers_here

    async def _submit_later(
        self, answer: "_Answer", request: InferRequest, found: Awaitable[ServedModel]
    ) -> None:
        """Let the model run the request when it is found, unless nobody waits for that any more."""
        call = answer.call
        try:
            model = await found
            if not call.ended:
                self._submit(answer, request, model)
        except HalimedeError as error:
            if not call.ended:
                _refuse(call, _FAILED.format(request.model_name, error.message))

    def _submit(self, answer: "_Answer", request: InferRequest, model: ServedModel) -> bool:
        """Let the model run the request: False if it is answered already.

        Raises:
            HalimedeError: the call cannot be made.
        """
        call, caller, name = answer.call, answer.caller, request.model_name
        if model.signature.decoupled and not call.decoupled:
            _refuse(call, _FAILED.format(name, _DECOUPLED.format(name)))
            return False
        if call.preferred_memory is not None and call.preferred_memory[0] == _GPU and not self._gpus:
            _refuse(call, _NO_GPU)
            return False
        if call.blocks and caller is not None and isinstance(model, Model):
            answer.waits = True
            if not self._waits.add(caller, call, request, _Instances(model)):
                _refuse(call, _FAILED.format(name, _ENDLESS.format(name)))
                return False
        if self._loans is not None and caller is not None:
            self._loans.add(caller, call, request, model)
            answer.request = request
        if call.trace is not None:
            trace_caused_request(call.trace, request, model.version, self._now)
        model.infer(request)
        if answer.request is not None:
            assert self._loans is not None
            self._loans.look()
        answer.submitted = True
        return True


_FAILED = "Model {} - Error when running inference: {}"

_DECOUPLED = (
    "Model {} is using the decoupled. The current BLS request call doesn't support models using the decoupled "
    "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
    "models.'"
)

_NO_GPU = (
    "BackendMemory::Create, all allocation types failed:\n\tGPU: the preferred memory is GPU memory, and this server "
    "has no GPU; prefer TRITONSERVER_MEMORY_CPU, or leave out preferred_memory"
)

_ENDLESS = (
    "the call would wait for ever: every instance of model '{}' waits, itself or through models that it calls, for "
    "this call. More instances (`instance_group`) of the models that call each other let it be served"
)


def _not_ready(name: str, error: HalimedeError) -> str:
    """What a call of a model reads that cannot be found, and why."""
    text = f"Failed for execute the inference request. Model '{name}' is not ready. {error.message}"
    return _FAILED.format(name, text)


def _refuse(call: ModelCall, text: str) -> None:
    """Answer a call that cannot be made."""
    call.respond(InferResponse(error=InternalError(text)), True)


class _Answer:
    """Where the responses to one call go.

    Attributes:
        call: the call.
        caller: the instance that made it, if it is known.
        request: what it became, if what the instance holds may be lent for it; None when it has its last response.
        submitted: the model has taken the request.
        waits: the instance that made the call waits for the first response.
    """

    __slots__ = ("_all", "_loans", "call", "caller", "request", "submitted", "waits")

    def __init__(self, waits: Waits, loans: Loans | None, call: ModelCall, caller: WorkerName | None) -> None:
        self._loans = loans
        self.request: InferRequest | None = None
        self.submitted = False
        self.waits = False
        self._all = waits
        self.call = call
        self.caller = caller

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the model."""
        call = self.call
        if self.waits:
            self.waits = False
            assert self.caller is not None
            self._all.remove(self.caller, call)
        if final and self.request is not None:
            assert self._loans is not None
            self._loans.remove(self.request)
            self.request = None
        if not self.submitted and response is not None and response.error is not None:
            _refuse(call, _FAILED.format(call.model_name, response.error.message))
        else:
            call.respond(response, final)


class _Instances:
    """The instances of a model, for those that look for circles."""

    def __init__(self, model: Model) -> None:
        self.name = model.identifier
        self.decoupled = model.signature.decoupled
        self._model = model

    def requests(self) -> Mapping[WorkerName, Iterable[InferRequest]]:
        """Each instance, and the requests whose execution there is not over."""
        model = self._model
        return {
            WorkerName(model.identifier, model.version, entry.spec.name): entry.instance.requests
            for entry in model.loaded.instances
            if not entry.passive
        }
