"""Calls of other models by one in the server's process: as `halimede_worker.calls.bls`, without messages."""

import asyncio
from collections.abc import Callable
from threading import Lock, get_ident
from typing import Any

from halimede.core.errors import HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse, Respond
from halimede.workers.call_server import ModelCall
from halimede.workers.encoding import encode_response
from halimede.workers.in_server.memory import ModelOutgoing, ServerMemory
from halimede.workers.in_server.responses import Responses, ServerResponseIterator
from halimede.workers.in_server.runtime import ServerRuntime
from halimede_worker.calls.bls import OutgoingRequest, Result
from halimede_worker.calls.calls import closed
from halimede_worker.errors import TritonModelException
from halimede_worker.responses import InferenceResponse, decode_response
from halimede_worker.runtime import Stage

Began = Callable[[InferRequest | None], None]
"""Told what a call became, None if it is answered already. On the loop."""

_MEMORY = ServerMemory()


class Calls:
    """What calls other models for one instance. May be used on any thread."""

    def __init__(self, runtime: ServerRuntime) -> None:
        self._runtime = runtime

    def execute(self, request: OutgoingRequest, decoupled: bool) -> Result:
        """Have another model run the request, and wait: see `halimede_worker.calls.bls.execute_inference`."""
        self._check_stage()
        if decoupled:
            responses = Responses(self._runtime, self._received)
            self._submit(request, responses.take, responses.began, decoupled=True)
            iterator = ServerResponseIterator(responses)
            iterator.receive()
            return iterator
        answers: list[InferenceResponse] = []
        over = Lock()
        over.acquire()

        def respond(response: InferResponse | None, final: bool) -> None:
            if response is not None and not answers:
                answers.append(self._received(response))
            if final:
                over.release()

        if self._runtime.on_loop:
            with self._runtime.clock.aside():
                self._submit(request, respond, _ignore, waits=True)
                self._runtime.run_soon(lambda: bool(answers))
        else:
            self._submit(request, respond, _ignore, waits=True)
            over.acquire()
        return answers[0]

    def execute_async(self, request: OutgoingRequest, decoupled: bool) -> "asyncio.Future[Result]":
        """Have another model run the request: see `halimede_worker.calls.bls.execute_inference_async`."""
        self._check_stage()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        start = self._start_stream if decoupled else self._start_async
        start(request, future, loop)
        return future

    def _start_async(
        self, request: OutgoingRequest, future: "asyncio.Future[Result]", loop: asyncio.AbstractEventLoop
    ) -> None:
        made: list[InferRequest] = []

        def respond(response: InferResponse | None, final: bool) -> None:
            if response is not None:
                self._settle(future, loop, self._received(response))

        def began(became: InferRequest | None) -> None:
            if became is not None:
                made.append(became)
                if future.cancelled():
                    became.cancel()

        def done(_: object) -> None:
            if future.cancelled() and made:
                self._runtime.post(made[0].cancel)

        future.add_done_callback(done)
        self._submit(request, respond, began)

    def _start_stream(
        self, request: OutgoingRequest, future: "asyncio.Future[Result]", loop: asyncio.AbstractEventLoop
    ) -> None:
        responses = Responses(self._runtime, self._received)
        iterator = ServerResponseIterator(responses)

        def respond(response: InferResponse | None, final: bool) -> None:
            is_first = not responses.begun
            responses.take(response, final)
            if is_first:
                iterator.receive()
                self._settle(future, loop, iterator)

        def done(_: object) -> None:
            if future.cancelled():
                iterator.leave(cancel=True)

        future.add_done_callback(done)
        self._submit(request, respond, responses.began, decoupled=True)

    def _settle(
        self, future: "asyncio.Future[Result]", loop: asyncio.AbstractEventLoop, result: Result
    ) -> None:
        def settle() -> None:
            if not future.done():
                future.set_result(result)

        if loop is self._runtime.loop:
            settle()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    def _submit(
        self,
        request: OutgoingRequest,
        respond: Respond,
        began: Began,
        *,
        decoupled: bool = False,
        waits: bool = False,
    ) -> None:
        """Let the engine run the request; `waits`: the caller does not touch its tensors until it is answered."""
        runtime = self._runtime
        runtime.calls_made += 1
        encoded = request._encoded(ModelOutgoing(runtime.memory, waits=waits))  # noqa: SLF001 - of the same module
        if runtime.on_loop:
            began(self._start(encoded, respond, decoupled, blocks=False))
            return
        blocks = get_ident() == runtime.thread

        def start() -> None:
            began(self._start(encoded, respond, decoupled, blocks))

        runtime.post(start)

    def _start(
        self, encoded: tuple[Any, ...], respond: Respond, decoupled: bool, blocks: bool
    ) -> InferRequest | None:
        """Run the call, on the loop: the request that it became, or None if it is answered."""
        services = self._runtime.services
        answer = _Answer(respond)
        try:
            if services is None:
                raise UnavailableError(str(closed()))
            call = ModelCall(encoded, _MEMORY, answer.respond, decoupled=decoupled, blocks=blocks)
            for tensor in call.inputs.values():
                tensor.shared = True  # the caller has them too
            answer.call = call
            self._runtime.targets.add((call.model_name, call.model_version))
            return services.infer(call)
        except HalimedeError as error:
            answer.respond(InferResponse(error=error), True)
            return None

    def _received(self, response: InferResponse) -> InferenceResponse:
        """The response as the model sees it."""
        return decode_response(encode_response(response, _MEMORY.outgoing()), self._runtime.memory)

    def _check_stage(self) -> None:
        if self._runtime.stage is not Stage.READY:
            raise TritonModelException("BLS is only supported during the 'execute' function.")


class _Answer:
    """Where the responses to one call go; the call has ended with the last of them."""

    __slots__ = ("_respond", "call")

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.call: ModelCall | None = None

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the engine."""
        if final and self.call is not None:
            self.call.ended = True
            self.call = None
        self._respond(response, final)


def _ignore(_: object) -> None:
    """Whoever waits for the only response has no use for the request."""
