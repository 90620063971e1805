"""An instance of a Python model: batches to its worker and back, what is under way, crashes and restarts."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from time import monotonic_ns
from typing import Any

from halimede.backends.base import Instance
from halimede.backends.batch import DEFERRED, Batch, fail
from halimede.backends.text_counts import TextCounts
from halimede.core import tasks
from halimede.core.buffers import POOL
from halimede.core.errors import HalimedeError, InternalError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.workers.channel import Message
from halimede.workers.encoding import decode_response, encode_request
from halimede.workers.ended_sequences import EndedSequences
from halimede.workers.error_numbers import ERRORS
from halimede.workers.execution_limit import ExecutionLimit
from halimede.workers.exit_reason import unhealthy
from halimede.workers.host import Launch, Load, WorkerHost, WorkerName
from halimede.workers.memory import ServerOutgoing
from halimede.workers.output_checks import OutputChecks
from halimede.workers.owner import Leaving, Owner
from halimede.workers.progress import COUNT, Progress
from halimede.workers.reshaping import Reshaping
from halimede.workers.restarts import RestartPolicy
from halimede.workers.slow_executions import SLOW_SECONDS, SlowExecutions
from halimede.workers.turnaround import Turnaround
from halimede.workers.under_way import Open, Sent, WarmUp, fail_sent
from halimede.workers.worker import Worker
from halimede_worker.messages import wire
from halimede_worker.messages.memory import Outgoing
from halimede_worker.states import EncodedState

logger = logging.getLogger("halimede")

CREDIT = 32
"""So many responses of one request are acknowledged at once."""

MAX_UNUSED_PROCESSES = 3
"""So many processes in a row may end before they begin a batch that they were sent: then the batch is the reason."""


class WorkerInstance(Instance):
    """An instance that lives in a worker process. Lives on the event loop, but for `execute` and `close`.

    Attributes:
        free: it takes a batch.
        name: which it is.
        only_full: it takes any batch, as its executions take next to no time where it takes more than one.
        healthy: its process runs.
        in_server: it runs in the server's process after all: see `in_server.instance`.
        trouble: why it could not be started again, while that is so.
    """

    may_block = True
    only_full = False
    in_server = False

    def __init__(
        self,
        host: WorkerHost,
        name: WorkerName,
        launch: Launch,
        arguments: dict[str, Any],
        outputs: tuple[str, ...],
        *,
        decoupled: bool,
        reshaping: Reshaping | None = None,
        checks: OutputChecks | None = None,
        timeout_s: float = 0,
        slow_s: float = SLOW_SECONDS,
        concurrency: int = 1,
        states: Sequence[EncodedState] = (),
        worker: Worker | None = None,
    ) -> None:
        """An instance that is not started yet.

        Args:
            host: where it runs.
            name: which it is.
            launch: how its process is started.
            arguments: what the model's `initialize` is given.
            outputs: all outputs of the model.
            decoupled: any number of responses may answer a request.
            reshaping: gives outputs the shapes that clients see; None if they have them.
            checks: holds responses against the configuration; None for a backend that gives what is configured.
            timeout_s: how long an execution may take; 0 for ever.
            slow_s: an execution that takes longer is logged; 0 for none.
            concurrency: how many executions a model with a coroutine `execute` runs at once.
            states: what a Python model keeps for sequences; other models know by themselves.
            worker: a process that runs already, for the first start; None to start one.
        """
        self.free = False
        self.healthy = False
        self.trouble: HalimedeError | None = None
        self._host = host
        self.name = name
        self._launch = launch
        self._arguments = arguments
        self._outputs = outputs
        self._decoupled = decoupled
        self._reshaping = reshaping
        self._checks = checks
        self._concurrency = concurrency
        self._states = states
        self._spare = worker
        self._worker: Worker | None = None
        self._owner: Owner[WorkerInstance] = WarmUp(host.loop)
        self._sent: dict[int, Sent] = {}  # by the number of the first request, in the order of sending
        self._open: dict[int, Open] = {}
        self._number = 1
        self._turnaround = Turnaround(concurrency)
        self._progress = Progress()
        self._calls = False  # executions of this model call the server, and so may wait for others
        self._served = False  # since it was started
        self._reserved_bytes = 0
        self._unused = 0  # times that it ended without having begun what it had been sent
        self._waited: Sent | None = None  # `run` waits for its result
        self._limit: ExecutionLimit | None = None
        if timeout_s:
            self._limit = ExecutionLimit(host.loop, timeout_s, self._since, self._overdue)
        self._watch: SlowExecutions | None = None
        if slow_s:
            self._watch = SlowExecutions(host.loop, name, slow_s, self._since, self._stack)
        self._ended_ns = 0  # when an execution was over
        self._verdict = ""
        self._ended = EndedSequences(host.loop)
        self._restarts = RestartPolicy(host.clock)
        self._reviving: asyncio.Task[None] | None = None
        self._leaving = self._closing = False

    # Coming and going

    async def start(self) -> None:
        """Start the process and let the model initialize.

        Raises:
            HalimedeError: it does not start, or `initialize` failed.
        """
        worker, self._spare = self._spare, None
        if worker is not None and worker.exited is None:
            worker.adopt(self._message, self._exited)
        else:
            worker = await Worker.start(
                self._host, self.name, self._launch, self._message, self._exited, self._called
            )
        try:
            progress = POOL.private(8)
            outgoing = worker.memory.outgoing()
            worker.memory.introduce(progress)
            outgoing.fresh.append(progress)
            message = (
                wire.INITIALIZE,
                self._arguments,
                (progress.number, 0, 8 * COUNT),
                self._concurrency,
                tuple(self._states),
            )
            told = await worker.ask(message, outgoing)
        except BaseException:
            await worker.stop(graceful=False)
            raise
        self._served = False
        self._reserved_bytes = told["reserved"]
        self._worker = worker
        self._ended.serve(worker.work if told["sequences"] else None)
        self._progress = Progress(progress[: 8 * COUNT])
        self.healthy = self.free = True

    def attach(self, owner: "Owner[WorkerInstance]") -> None:
        """Run batches for the owner from now on."""
        self._owner = owner
        if self._worker is not None:
            self._worker.serving()

    def run_one_by_one(self) -> None:
        """Take a batch only when the last one has run, whatever the model could run at once."""
        self._turnaround.run_one_by_one()

    @property
    def load(self) -> Load:
        """What all workers have to do."""
        return self._host.load

    @property
    def requests(self) -> Collection[InferRequest]:
        """The requests whose execution is not over."""
        return [request for sent in self._sent.values() for request in sent.batch.requests]

    @property
    def waiting(self) -> int:
        """How many of `requests` were sent ahead: the execution of a batch before theirs is not over."""
        return sum(len(sent.batch.requests) for sent in list(self._sent.values())[1:])

    @property
    def processes(self) -> tuple[int, ...]:
        """Its process, if it runs."""
        worker = self._worker
        return () if worker is None else (worker.pid,)

    @property
    def reserved_bytes(self) -> int:
        """Memory that its process has reserved and not used when it began."""
        return self._reserved_bytes

    async def leave(self) -> None:
        """Take no more batches, and return when what the worker has begun is over; the rest goes back to the owner."""
        self._leaving = True
        self.recall()
        self._turnaround.send_none()
        self.free = False
        self._owner = leaving = Leaving(self._owner, self._host.loop, self._is_idle)
        leaving.look()
        await leaving.finished

    def _is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self._sent or self._open)

    def close(self) -> None:
        """Let the model finalize and end the process. Blocks; no batch may be under way."""
        self._host.wait(self._stop())

    async def _stop(self) -> None:
        self._closing = True
        self.free = self.healthy = False
        self._unwatch()
        await tasks.cancel(self._reviving)
        if self._worker is not None:
            self._ended.tell()
            await self._worker.stop(graceful=True)
        self._progress = Progress()  # at once, not when the garbage is collected

    async def ready(self) -> tuple[bool, str]:
        """Whether the model is ready, as its `is_ready` says, and why not."""
        if self._worker is None or not self.healthy:
            return False, unhealthy(self.name.instance)
        return await self._worker.probe.check()

    # Batches

    def execute(self, batch: Batch) -> None:
        """Run the batch before the instance has an owner, from a thread that waits for it."""
        self._host.wait(self._execute(batch))
        if batch.failed:
            error = batch.responses[0].error
            assert error is not None
            raise error

    async def _execute(self, batch: Batch) -> None:
        self._owner = warm_up = WarmUp(self._host.loop)
        batch.byte_size = sum(
            each.byte_size for request in batch.requests for each in request.inputs.values()
        )
        if not self.run(batch):
            await warm_up.finished

    def run(self, batch: Batch) -> bool:
        """Send the batch to the worker: True if it has run, or failed to be sent; False if the owner will be told.

        While nothing else is to be done, the result of a model that takes next to no time is waited for here: to
        return to the event loop and be called from it costs about as much again.
        """
        worker = self._running
        if self._ended.pending:
            self._ended.tell()
        outgoing = None
        if batch.byte_size > Outgoing.INLINE_BYTES or any(
            [request.targets for request in batch.requests]  # noqa: C419 - faster for the few that there are
        ):
            outgoing = worker.memory.outgoing()
        first = self._number
        try:
            sent, message = self._begin(batch, outgoing)
            busy_ns = self._host.busy_wait.grant(self._progress, alone=self._is_alone)
            worker.work.send(message, outgoing)
        except MemoryError as error:
            self._sent.pop(first, None)
            fail(batch, UnavailableError(f"model '{self.name.model}': {error}"))
            return True
        turnaround = self._turnaround
        if turnaround.may_wait() and self._is_alone:
            in_time = self._wait_for(sent, busy_ns)
            turnaround.waited(in_vain=not in_time)
            if in_time:
                return True
        self._leave_under_way(sent)
        if self._limit is not None:
            self._limit.begin()
        return False

    def _begin(self, batch: Batch, outgoing: ServerOutgoing | None) -> tuple[Sent, Message]:
        """Take a batch: what is kept of it, and the message.

        Raises:
            MemoryError: there is no shared memory for a large tensor.
        """
        requests = batch.requests
        first = self._number
        self._number += len(requests)
        batch.started_ns = monotonic_ns()
        batch.instance = self.name.instance
        encoded = [
            encode_request(number, request, outgoing, self._outputs)
            for number, request in enumerate(requests, first)
        ]
        sent = self._sent[first] = Sent(first, batch, outgoing.segments if outgoing is not None else ())
        segments = [segment.number for segment in sent.segments]
        return sent, (wire.EXECUTE, first, encoded, self._running.memory.unused(), segments)

    def _leave_under_way(self, sent: Sent) -> None:
        """The batch runs; the owner will be told."""
        self.free = len(self._sent) < self._turnaround.ahead
        if self._watch is not None:
            self._watch.begin()
        self._heed_cancellation(sent)
        if self._decoupled:
            for number, request in enumerate(sent.batch.requests, sent.first):
                request.on_drain = self._drained
                self._open[number] = Open(sent.batch, request)

    def _heed_cancellation(self, sent: Sent) -> None:
        for request in sent.batch.requests:
            request.on_cancel = self._cancel

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """Have the process forget a sequence. One that has taken the place of another knows nothing of it."""
        self._ended.add(key, correlation_id, reason)

    @property
    def _is_alone(self) -> bool:
        """Whether nothing else is to be done until the result of the only batch is there."""
        return self._host.load.inflight <= 1 and not (self._decoupled or self._calls) and len(self._sent) <= 1

    def _wait_for(self, sent: Sent, busy_ns: int) -> bool:
        """Whether the result came within a moment, in the first `busy_ns` of which the processor may be busy."""
        first, work = next(iter(self._sent)), self._running.work
        self._waited = sent
        if busy_ns and (busy_ns := self._turnaround.busy_ns(busy_ns)):
            began = monotonic_ns()
            while first in self._sent and work.look(began + busy_ns):
                pass
            self._host.busy_wait.waited(monotonic_ns() - began, in_vain=first in self._sent)
        while first in self._sent and work.wait():
            pass
        self._waited = None
        return first not in self._sent

    def recall(self) -> None:
        """Send nothing ahead any more, and take back what was.

        An execution that waits for another model may wait for a request that was sent ahead to an instance which in
        turn waits for it. A worker that is about to begin a batch either sees that it was taken back, and says so, or
        is seen to have begun it.
        """
        if self._calls:
            return
        self._calls = True
        self._turnaround.send_none_ahead()
        begun = self._progress.take_back(self._number)
        waiting = [(first, entry) for first, entry in self._sent.items() if first > begun]
        for first, _ in waiting:
            del self._sent[first]
        self._return(waiting)

    def _counted(self, firsts: list[tuple[int, int]], counts: tuple[Any, ...]) -> None:
        """A language model tells what it has counted; requests that are forgotten meanwhile had failed."""
        opened = ((self._open.get(number), at_ns) for number, at_ns in firsts)
        first_tokens = [(each.request, at_ns) for each, at_ns in opened if each is not None]
        self._owner.counted(self, TextCounts(first_tokens, *counts))

    def _dropped(self, first: int) -> None:
        """The worker passes over a batch that was taken back, perhaps only now that it had all but begun it."""
        sent = self._sent.pop(first, None)
        if sent is not None:
            self._return([(first, sent)])
        self.free = self.healthy and len(self._sent) < self._turnaround.ahead
        self._owner.changed(self)

    def _called(self) -> None:
        """The worker calls the server."""
        if not self._calls:
            self._owner.called()

    def _message(self, message: Message) -> None:
        try:
            if message[0] == wire.RESULT:
                self._result(message)
            else:
                self._take(message)
        except Exception:
            logger.exception("a message of '%s' cannot be used", self.name.instance)
            self._verdict = "was killed because it sent a message that cannot be used"
            if self._worker is not None:
                self._worker.kill()  # nobody is to wait for what it would have said

    def _take(self, message: Message) -> None:
        kind = message[0]
        if kind == wire.RESPONSE:
            self._response(*message[1:])
        elif kind == wire.RESPONSES:
            for response in message[1]:
                self._response(*response)
        elif kind == wire.BATCH_FAILED:
            self._batch_failed(message)
        elif kind == wire.ABANDONED:
            self._abandoned(message[1])
        elif kind == wire.DROPPED:
            self._dropped(message[1])
        elif kind == wire.COUNTED:
            self._counted(*message[1:])
        elif kind == wire.HELD:
            self._running.memory.hold(message[1])
        elif kind == wire.RELEASED:
            self._running.memory.released(message[1])

    def _result(self, message: Message) -> None:
        _, first, began, ended, responses, held = message
        sent = self._sent[first]
        if not all(responses):
            sent.batch.rescheduled = [
                self._again(sent, first + offset)
                for offset, encoded in enumerate(responses)
                if encoded == wire.AGAIN
            ]
        if not self._decoupled:
            sent.batch.responses = [
                self._decode(encoded, request) if encoded else self._later(sent, number)
                for number, (encoded, request) in enumerate(
                    zip(responses, sent.batch.requests, strict=True), first
                )
            ]
        del self._sent[first]
        self._ran(sent, began, ended, held)

    def _decode(self, encoded: tuple[Any, ...], request: InferRequest) -> InferResponse:
        """A response to the request, as its client sees it."""
        response = decode_response(encoded, self._running.memory)
        checks = self._checks
        if checks is not None and not checks.fits(request, encoded[0]):
            response = checks.apply(request, encoded, response)
        return response if self._reshaping is None else self._reshaping.apply(response)

    def _later(self, sent: Sent, number: int) -> InferResponse:
        """Stands for the response to a request that comes again, or that the model answers by itself."""
        request = sent.request(number)
        comes = sent.answered is None or request not in sent.answered
        if comes and request not in sent.batch.rescheduled:
            self._open[number] = Open(sent.batch, request)
        return DEFERRED

    def _again(self, sent: Sent, number: int) -> InferRequest:
        """The request, which the model wants again: it gets another number then."""
        self._open.pop(number, None)
        return sent.request(number)

    def _batch_failed(self, message: Message) -> None:
        _, first, began, ended, text, kind, held = message
        sent = self._sent.pop(first)
        for number in range(first, first + len(sent.batch.requests)):
            self._open.pop(number, None)
        if kind is None:  # what the model raised, which its author looks for here
            logger.error("%s", text)
        fail_sent(sent, InternalError(text) if kind is None else ERRORS[kind](text))
        self._ran(sent, began, ended, held)

    def _ran(self, sent: Sent, began: int, ended: int, held: list[int]) -> None:
        """The execution is over; its answers, as far as they are there, are in the batch."""
        memory, batch = self._running.memory, sent.batch
        if held or memory.holds:
            memory.hold(held)
        if memory.untidy:
            self._running.tidy_later()
        now = monotonic_ns()
        self._served = True
        batch.inputs_ns, batch.outputs_ns, batch.ended_ns = began, ended, now
        self._turnaround.measure(ended - began)
        self._ended_ns = now
        self.free = self.healthy and len(self._sent) < self._turnaround.ahead
        if sent is not self._waited:  # which `run` sees for itself
            self._owner.ran(self, batch)

    @property
    def _running(self) -> Worker:
        assert self._worker is not None, "only a running worker sends messages"
        return self._worker

    # Responses beside those that `execute` returned

    def _response(self, number: int, encoded: tuple[Any, ...] | None, final: bool) -> None:
        opened = self._open.get(number)
        found = None if opened is not None or self._decoupled else self._find(number)
        request = opened.request if opened is not None else None if found is None else found[1]
        if request is None:
            return  # its batch failed, and the client was told
        response = None if encoded is None else self._decode(encoded, request)
        if self._running.memory.untidy:
            self._running.tidy_later()
        if self._decoupled:
            assert opened is not None, "each request of a decoupled model is open until its end"
            if final:
                del self._open[number]
            self._owner.sent(opened.batch, request, response, final)
            if not final:
                opened.owed += 1
                if opened.owed >= CREDIT and not request.congested:
                    self._acknowledge(number, opened)
        elif response is None:
            pass  # a final flag after the only response
        elif opened is not None:
            del self._open[number]
            self._owner.sent(opened.batch, request, response, True)
        elif found is not None:
            sent, _ = found
            sent.answer(request)
            self._owner.sent(sent.batch, request, response, True)

    def _abandoned(self, number: int) -> None:
        """Nothing can answer the request any more."""
        text = (
            f"the model '{self.name.model}' let go of the response sender of a request without a final response: "
            f"each request needs one sent with the flag TRITONSERVER_RESPONSE_COMPLETE_FINAL"
        )
        opened = self._open.pop(number, None)
        if opened is not None:
            self._owner.sent(opened.batch, opened.request, InferResponse(error=InternalError(text)), True)
        elif (found := self._find(number)) is not None:
            sent, request = found
            if sent.answered is None or request not in sent.answered:
                sent.answer(request)
                self._owner.sent(sent.batch, request, InferResponse(error=InternalError(text)), True)

    def _find(self, number: int) -> tuple[Sent, InferRequest] | None:
        """The request of that number, if its execution is not over."""
        for first, sent in self._sent.items():
            if first <= number < first + len(sent.batch.requests):
                return sent, sent.batch.requests[number - first]
        return None

    def _acknowledge(self, number: int, opened: Open) -> None:
        self._running.control.send((wire.CREDIT, number, opened.owed))
        opened.owed = 0

    def _drained(self, request: InferRequest) -> None:
        for number, opened in self._open.items():
            if opened.request is request and opened.owed and self._worker is not None:
                self._acknowledge(number, opened)

    def _cancel(self, request: InferRequest) -> None:
        worker = self._worker
        if worker is None:
            return
        for number, opened in self._open.items():
            if opened.request is request:
                worker.control.send((wire.CANCEL, number))
                return
        for first, sent in self._sent.items():
            if request in sent.batch.requests:
                worker.control.send((wire.CANCEL, first + sent.batch.requests.index(request)))
                return

    # Executions that take too long

    @property
    def slow_s(self) -> float:
        """How long its execution has been running, in seconds, if that is too long; else 0."""
        return 0.0 if self._watch is None else self._watch.running_s

    async def _stack(self) -> str:
        """Where its Python code is; "" if it cannot tell."""
        return "" if self._worker is None else await self._worker.stack()

    def _unwatch(self) -> None:
        """No execution is to be watched any more."""
        if self._limit is not None:
            self._limit.end()
        if self._watch is not None:
            self._watch.stop()

    def _since(self) -> int:
        """When the execution began that has run longest; 0 if none runs."""
        if not self._sent:
            return 0
        sent_ns = next(iter(self._sent.values())).batch.started_ns
        return sent_ns if self._concurrency > 1 else max(sent_ns, self._ended_ns)

    def _overdue(self) -> None:
        """An execution has taken too long: end the process, which will be started again."""
        if self._worker is not None and self._limit is not None:
            self._verdict = f"was killed because an execution took longer than {self._limit.seconds:g} s"
            self._worker.kill()

    # Crashes

    def _exited(self, reason: str) -> None:
        """The process is gone: its requests fail, those that it had not begun wait for the next one."""
        worker, self._worker = self._worker, None
        self._ended.serve(None)
        if worker is None or self._closing:
            return  # it did not initialize, which `start` tells, or was told to end
        reason, self._verdict = self._verdict or reason, ""
        self.free = self.healthy = False
        self._unwatch()
        instance = self.name.instance
        logger.error("Stub process '%s' %s", instance, reason)
        error = InternalError(unhealthy(instance, reason))
        begun = self._progress.begun
        sent, self._sent = self._sent, {}
        failed = [(first, entry) for first, entry in sent.items() if first <= begun]
        waiting = [(first, entry) for first, entry in sent.items() if first > begun]
        self._unused = 0 if self._served or failed or not waiting else self._unused + 1
        if self._unused == MAX_UNUSED_PROCESSES:  # it ends of receiving the first of them
            self._unused = 0
            failed.append(waiting.pop(0))
        self._return(waiting)
        opened, self._open = self._open, {}
        self._owner.changed(self)
        for first, entry in failed:
            for number in range(first, first + len(entry.batch.requests)):
                opened.pop(number, None)
            fail_sent(entry, error)
            entry.batch.inputs_ns = entry.batch.outputs_ns = entry.batch.ended_ns = monotonic_ns()
            self._owner.ran(self, entry.batch)
        for late in opened.values():
            self._owner.sent(late.batch, late.request, InferResponse(error=error), True)
        if not self._leaving:
            self._reviving = tasks.start(f"restarting '{instance}'", self._revive())

    def _return(self, entries: list[tuple[int, Sent]]) -> None:
        """Give batches that are not begun back, those that came first to be the first again."""
        for first, entry in reversed(entries):
            for number in range(first, first + len(entry.batch.requests)):
                self._open.pop(number, None)
            self._owner.returned(self, entry.batch)

    async def _revive(self) -> None:
        """Start the process again, and again until it works, each time after a longer wait."""
        while True:
            await self._restarts.wait(self._served)
            self._served = False
            try:
                await self.start()
                break
            except Exception as error:  # whatever it is, it may work the next time
                unforeseen = None if isinstance(error, HalimedeError | MemoryError | OSError) else error
                logger.error("failed to restart '%s': %s", self.name.instance, error, exc_info=unforeseen)
                self.trouble = UnavailableError(
                    f"model instance '{self.name.instance}' could not be restarted: {error}"
                )
                self._owner.changed(self)
        self.trouble = None
        logger.info("restarted '%s'", self.name.instance)
        if self.healthy:
            self._owner.changed(self)
