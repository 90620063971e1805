"""What the engine does for models in worker processes: their calls, metrics and logs, and what they print."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from halimede.core.requests import InferRequest
from halimede.engine.calls.bls import ModelCalls
from halimede.engine.calls.custom_metrics import CustomMetrics, HeldMetrics
from halimede.engine.calls.model_control import ModelControl
from halimede.engine.calls.worker_log import PrintedLines, log_record
from halimede.workers.call_server import Handler, ModelCall
from halimede.workers.channel import Channel, Message
from halimede.workers.host import Target, WorkerName
from halimede.workers.memory import PeerMemory
from halimede.workers.worker_calls import WorkerCalls
from halimede_worker.messages import wire


class WorkerServices:
    """Serves the workers of all models. Lives on the event loop.

    Attributes:
        metrics: what the models count.
    """

    def __init__(self, loop: AbstractEventLoop, calls: ModelCalls, control: ModelControl) -> None:
        self.metrics = CustomMetrics()
        self._loop = loop
        self._calls = calls
        self._control = control

    def attach(
        self, name: WorkerName, memory: PeerMemory, control: Channel, on_call: Callable[[], None]
    ) -> "WorkerService":
        """A worker process begins."""
        return WorkerService(
            self._loop, name, memory, control, on_call, self._calls, self._control, self.metrics
        )


class WorkerService:
    """Serves one worker process beside its work."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: WorkerName,
        memory: PeerMemory,
        control: Channel,
        on_call: Callable[[], None],
        calls: ModelCalls,
        models: ModelControl,
        metrics: CustomMetrics,
    ) -> None:
        self._name = name
        self._metrics = HeldMetrics(metrics, name.instance, control.poll)
        self._loading = True
        self._on_call = on_call
        handlers = {
            **models.call_handlers(name.model, name.instance, lambda: self._loading),
            **self._metrics.call_handlers(),
        }
        self._handlers = {kind: partial(self._handle, handler) for kind, handler in handlers.items()}
        self._control_handlers = self._metrics.control_handlers()

        self._calls = calls
        self._worker_calls = WorkerCalls(loop, memory, self.infer, self._handlers)
        self._printed = {
            False: PrintedLines(name.model, name.version, "stdout"),
            True: PrintedLines(name.model, name.version, "stderr"),
        }

    def begun(self, pid: int) -> None:
        """The process is known."""
        self._worker_calls.pid = pid

    def serving(self) -> None:
        """The model has been loaded."""
        self._loading = False

    def message(self, message: Message) -> None:
        """A message of the control socket."""
        kind = message[0]
        if kind == wire.LOG:
            log_record(self._name.model, self._name.version, *message[1:])
        elif kind == wire.OPEN:
            self._worker_calls.open(message[1], message[2])
        elif (handler := self._control_handlers.get(kind)) is not None:
            handler(message)

    def infer(self, call: ModelCall) -> InferRequest | None:
        """Run a call of another model."""
        if call.blocks:
            self._on_call()
        return self._calls.infer(call, self._name, is_loading=self._loading)

    def answer_here(self, targets: Collection[Target]) -> bool:
        """Whether calls of these models from the loop would be answered before they return."""
        return all(self._calls.answers_here(*target, self._name) for target in targets)

    def handle(self, message: Message) -> Any:
        """What comes of a call that is no inference, or an awaitable of it."""
        return self._handlers[message[0]](message)

    def _handle(self, handler: Handler, message: Message) -> Any:
        if not self._loading:
            self._on_call()
        return handler(message)

    def printed(self, data: bytes, error: bool) -> None:
        """Something that it printed, on standard output or error; b"" when that is closed."""
        if data:
            self._printed[error].feed(data)
        else:
            self._printed[error].close()

    def close(self) -> None:
        """The process is gone."""
        self._worker_calls.close()
        self._metrics.close()
        self._handlers.clear()  # they refer to it, and are not to be left to the garbage collector
