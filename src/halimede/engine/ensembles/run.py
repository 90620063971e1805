"""One request's way through an ensemble: steps begin when their tensors are there, and respond to callbacks.

All of it happens on the event loop, without tasks or futures. A model may answer a step at once, inside of `infer`, so
what has become ready is queued and taken up by the outermost call: neither long chains nor long streams recurse.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from halimede.config.signature import match_wildcards
from halimede.core.errors import (
    CancelledError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.iterations import Iteration, Producer
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.ensembles.routes import Slot, Stage, Step
from halimede.engine.ensembles.step_limits import StepLimits, Waiter
from halimede.engine.ensembles.steps import RunningStep, changed_sequence, staying_outputs
from halimede.engine.served_model import Find
from halimede.engine.tracing.recording import trace_caused_request

logger = logging.getLogger("halimede")


class Outcome(Protocol):
    """Who is told what became of a run: the ensemble."""

    def finished(self, run: "EnsembleRun") -> None:
        """The final response is sent."""

    def computed_late(self, run: "EnsembleRun", input_ns: int, infer_ns: int, output_ns: int) -> None:
        """A model of the run, which is finished, tells only now how long it computed."""


class EnsembleRun:
    """A request to an ensemble, under way.

    Attributes:
        request: the request.
        error: why it failed, or None.
        first_ns: when the first response was sent, 0 if none was.
        finished_ns: when the final response was sent, 0 if it was not.
        input_ns, infer_ns, output_ns: what its models took to gather inputs, to compute and to hand out outputs, in
            nanoseconds, all steps together.
    """

    __slots__ = (
        "_find",
        "_limits",
        "_now",
        "_outcome",
        "_plan",
        "_pumping",
        "_ready",
        "_root",
        "_route",
        "_running",
        "_waiting",
        "error",
        "finished_ns",
        "first_ns",
        "infer_ns",
        "input_ns",
        "output_ns",
        "request",
    )

    def __init__(
        self,
        plan: EnsemblePlan,
        request: InferRequest,
        find: Find,
        now: Callable[[], int],
        outcome: Outcome,
        limits: StepLimits | None = None,
    ) -> None:
        """A run that is yet to start.

        Args:
            plan: the ensemble's.
            request: a valid request to the ensemble.
            find: gives the models of the steps.
            now: the time, in nanoseconds.
            outcome: who is told when it is over.
            limits: which steps may run, if the ensemble has limits.
        """
        self.request = request
        self.error: HalimedeError | None = None
        self.first_ns = self.finished_ns = 0
        self.input_ns = self.infer_ns = self.output_ns = 0
        self._plan = plan
        self._route = plan.route(request.outputs)
        self._find = find
        self._now = now
        self._outcome = outcome
        self._root = Iteration(self._route)
        self._ready: deque[tuple[Iteration, Stage]] = deque()
        self._pumping = False
        self._running: set[RunningStep] = set()
        self._limits = limits
        self._waiting: set[Waiter] = set()

    def start(self) -> None:
        """Run the first steps. The request is answered through its `respond`."""
        request = self.request
        request.on_cancel = self._cancelled
        if self._plan.signature.decoupled:
            request.on_drain = self._drained
        inputs = request.inputs
        for name, slot in self._route.inputs:
            self._put(self._root, slot, inputs.get(name))
        self._pump()

    def answered(self, running: RunningStep, response: InferResponse | None, final: bool) -> None:
        """Go on with a response of a step."""
        if running not in self._running:
            return  # it had its final response
        if final:
            running.request = None
        if response is not None:
            if response.error is not None:
                self._fail(self._of_step(running.step, response.error))
            elif self.error is None:
                if running.step.planned.decoupled:
                    self._begin_iteration(running, response, final)
                else:
                    self._take_outputs(running, response)
        if final:
            self._end(running)
        self._pump()
        if final and self._limits is not None:
            self._limits.release(running.step)

    def admitted(self, waiter: Waiter) -> None:
        """Run a step that waited for room."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            self._send_request(waiter.iteration, waiter.step)
            self._release(waiter.iteration)
            self._pump()
        elif self._limits is not None:
            self._limits.release(waiter.step)

    def computed(self, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Count what a step took to compute."""
        if self.finished_ns:
            self._outcome.computed_late(self, input_ns, infer_ns, output_ns)
            return
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns

    @property
    def requests(self) -> list[InferRequest]:
        """What the models of its steps are at."""
        return [running.request for running in self._running if running.request is not None]

    # Tensors arrive, stages become ready

    def _put(self, iteration: Iteration, slot: Slot, tensor: Tensor | None) -> None:
        """The iteration has another tensor, or knows that it was left out."""
        if slot.shared and tensor is not None:
            tensor.shared = True
        iteration.tensors[slot.index] = tensor
        for stage in slot.readers:
            self._arrived(iteration, stage)
        for stage in slot.inner:
            for inner in iteration.inner(stage.depth):
                self._arrived(inner, stage)

    def _arrived(self, iteration: Iteration, stage: Stage) -> None:
        """The stage waits for one tensor less."""
        left = iteration.missing[stage.index] - 1
        iteration.missing[stage.index] = left
        if not left:
            self._ready.append((iteration, stage))

    def _take_outputs(self, running: RunningStep, response: InferResponse) -> None:
        """Hand on the only response of a step."""
        if running.answered:
            msg = (
                f"{self.request.prefix}the model gave more than one response to a request, which only decoupled "
                f"models may"
            )
            self._fail(self._of_step(running.step, InternalError(msg)))
            return
        running.answered = True
        self._hand_on(running, running.iteration, response)

    def _begin_iteration(self, running: RunningStep, response: InferResponse, final: bool) -> None:
        """Hand on one of the responses of a decoupled step."""
        if final and not response.outputs:
            return  # it only says that there are no more
        parent = running.iteration
        iteration = Iteration(self._route, parent, running)
        parent.children.append(iteration)
        self._hand_on(running, iteration, response)
        self._pass_on_congestion(running)

    def _hand_on(self, running: RunningStep, iteration: Iteration, response: InferResponse) -> None:
        sequence = running.sequence
        if response.parameters:
            sequence = changed_sequence(response.parameters, sequence, self.request)
        outputs = response.outputs
        if sequence is not None:
            iteration.sequences = iteration.sequences or {}
            iteration.sequences |= {slot.index: sequence for _, slot in running.step.targets}
        for name, slot in running.step.targets:
            self._put(iteration, slot, outputs.get(name))

    def _pump(self) -> None:
        """Do all that has become ready, and end the run if nothing is left."""
        if self._pumping:
            return
        self._pumping = True
        try:
            ready = self._ready
            while ready:
                iteration, stage = ready.popleft()
                if self.error is not None:
                    continue
                if isinstance(stage, Step):
                    self._run(iteration, stage)
                else:
                    self._respond(iteration)
        finally:
            self._pumping = False
        if not self._running and not self._waiting and not self.finished_ns:
            self._finish()

    # Steps

    def _run(self, iteration: Iteration, step: Step) -> None:
        """Send a step's model its request, or let that wait for room."""
        if self._limits is None or self._limits.admit(step):
            self._send_request(iteration, step)
            return
        waiter = Waiter(self, iteration, step)
        self._waiting.add(waiter)
        self._limits.wait(waiter)
        self._hold(iteration)

    def _send_request(self, iteration: Iteration, step: Step) -> None:
        """Send a step's model its request."""
        planned = step.planned
        running = RunningStep(step, iteration, self.answered)
        request = running.make_request(self.request, self._now)
        request.on_compute = self.computed
        self._running.add(running)
        try:
            model = self._find(planned.model_name, planned.model_version)
            request.model_version = model.version
            if model.takes_device_tensors:
                request.on_device = staying_outputs(step, self._find)
            if planned.decoupled and self.request.congested:
                request.congest()
            if self.request.trace is not None:
                trace_caused_request(self.request.trace, request, model.version, self._now)
            model.infer(request)
        except HalimedeError as error:
            self.answered(running, InferResponse(error=error), True)
        except Exception as error:  # the client of the ensemble waits, whatever happens
            logger.exception("a step of ensemble '%s' failed", self._plan.name)
            internal = InternalError(f"{type(error).__name__}: {error}")
            self.answered(running, InferResponse(error=internal), True)

    def _end(self, running: RunningStep) -> None:
        """A step has its final response."""
        self._running.discard(running)
        if running.step.planned.decoupled:
            running.iteration.closed = True
            self._send_results()

    # Responses

    def _respond(self, iteration: Iteration) -> None:
        """An iteration has all outputs of the ensemble."""
        outputs: dict[str, Tensor] = {}
        reshaped = self._route.reshaped
        for source in self._route.sink.sources:
            tensor = iteration.take(source)
            if tensor is not None:
                if source.name in reshaped:
                    tensor = self._as_seen_by_clients(tensor, source.name)
                outputs[source.name] = tensor
        iteration.result = InferResponse(outputs)
        self._send_results()

    def _as_seen_by_clients(self, tensor: Tensor, name: str) -> Tensor:
        spec, lead = self._route.reshaped[name], 1 if self._plan.signature.max_batch_size > 0 else 0
        shape = tensor.shape
        if len(shape) != lead + len(spec.backend_dims):
            return tensor
        return tensor.reshaped(shape[:lead] + match_wildcards(shape[lead:], spec.backend_dims, spec.dims))

    def _send_results(self) -> None:
        """Send what there is, in the order in which the iterations began."""
        if not self._plan.signature.decoupled:
            return  # the only response is sent when all steps are finished
        depth = self._route.sink.depth
        iteration = self._root
        while self.error is None:
            if iteration.depth == depth:
                result, iteration.result = iteration.result, None
                if result is None:
                    return
                if self._is_last(iteration):
                    self._end_with(result)
                    return
                self._send(result)
                over = True
            else:
                over = iteration.closed and not iteration.children
            if over and iteration.parent is not None:
                iteration = iteration.parent
                iteration.children.popleft()
            elif iteration.children:
                iteration = iteration.children[0]
            else:
                return

    def _send(self, response: InferResponse) -> None:
        """Send one response of a decoupled ensemble."""
        if not self.first_ns:
            self.first_ns = self._now()
        self.request.respond(response, False)

    def _is_last(self, iteration: Iteration) -> bool:
        """Whether no step is left that could give a response after the iteration's."""
        if self._running or self._waiting or self._ready:
            return False
        while iteration.parent is not None:
            iteration = iteration.parent
            if not iteration.closed or len(iteration.children) > 1:
                return False
        return True

    def _finish(self) -> None:
        """All steps are finished: send the final response, without outputs if the ensemble is decoupled."""
        request = self.request
        if self.error is None and self._is_stuck():
            msg = (
                f"in ensemble '{self._plan.name}', {request.prefix}unexpected deadlock, at least one output is not set "
                f"while no more ensemble steps can be made"
            )
            self.error = InvalidArgumentError(msg)
        self._end_with(self._root.result if self.error is None else InferResponse(error=self.error))

    def _end_with(self, response: InferResponse | None) -> None:
        """Send the final response."""
        request = self.request
        request.on_cancel = request.on_drain = None  # they hold the run, which holds the request
        self.finished_ns = self._now()
        if request.on_compute is not None and self.error is None:
            request.on_compute(self.input_ns, self.infer_ns, self.output_ns)
        self._root.abandon()
        request.respond(response, True)
        self._outcome.finished(self)

    def _is_stuck(self) -> bool:
        """Whether a step did not give what it should have, so that the response, or one of them, never came about."""
        root = self._root
        if not self._plan.signature.decoupled:
            return root.result is None
        if self._route.sink.depth == 0:
            return not self.first_ns
        return not root.closed or bool(root.children)

    # Errors and cancellation

    def _of_step(self, step: Step, error: HalimedeError) -> HalimedeError:
        """The error as the ensemble's client reads it."""
        planned = step.planned
        where = f"(in step {planned.number}, model '{planned.model_name}')"
        told = type(error)(f"in ensemble '{self._plan.name}', {error.message} {where}")
        if isinstance(error, UnavailableError) and isinstance(told, UnavailableError):
            told.retry_after_s = error.retry_after_s
        return told

    def _fail(self, error: HalimedeError) -> None:
        """Begin nothing more, and tell the steps under way that nobody waits for them."""
        if self.error is not None:
            return
        self.error = error
        self._ready.clear()
        if self._limits is not None:
            for waiter in self._waiting:
                self._limits.leave(waiter)
            self._waiting.clear()
        for running in list(self._running):
            if running.request is not None:
                running.request.cancel()
            if running.request is not None:
                running.request.drain()

    def _cancelled(self, request: InferRequest) -> None:
        self._fail(CancelledError(request.prefix + "the request was cancelled"))
        self._pump()

    # Back-pressure

    def _hold(self, iteration: Iteration) -> None:
        """A step of the iteration waits for room: the steps whose responses it stems from shall wait too.

        Only those. What they have sent already never needs another response of theirs, so it goes on, and makes room.
        """
        producer = iteration.producer
        while producer is not None:
            producer.held += 1
            if producer.request is not None:
                producer.request.congest()
            producer = producer.iteration.producer

    def _release(self, iteration: Iteration) -> None:
        """The step has room."""
        producer = iteration.producer
        while producer is not None:
            producer.held -= 1
            outer = producer.iteration.producer
            self._drain(producer)
            producer = outer

    def _pass_on_congestion(self, running: RunningStep) -> None:
        """Hold a decoupled step back while whoever takes the ensemble's responses has enough of them."""
        if self.request.congested and running.request is not None:
            running.request.congest()

    def _drained(self, request: InferRequest) -> None:
        for running in list(self._running):
            self._drain(running)

    def _drain(self, running: Producer) -> None:
        """Let a decoupled step go on if nothing holds it back any more."""
        if not running.held and not self.request.congested and running.request is not None:
            running.request.drain()


def steps_under_way(request: InferRequest) -> list[InferRequest]:
    """What the models of an ensemble's steps are at, of all that its request became."""
    run = getattr(request.on_cancel, "__self__", None)
    return run.requests if isinstance(run, EnsembleRun) else []
