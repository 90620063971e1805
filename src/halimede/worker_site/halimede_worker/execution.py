"""Executions: a batch's requests to the model's `execute`, and what comes of them back to the server.

A model answers in any of four ways: `execute` returns the responses; it is a coroutine that does; its response
senders send them, then or later, from any thread; it raises. Whatever it does, each request is answered: where the
contract leaves a request without an answer for ever, the answer is an error that says so.
"""

import threading
import weakref
from collections.abc import Coroutine
from time import monotonic_ns
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Type, Union

import numpy as np

from .calls.answers import answers
from .calls.bls import release
from .calls.logger import log_failure
from .errors import PlainError, TritonError, TritonModelException, describe
from .messages import wire
from .messages.memory import Memory, Outgoing, SharedMemoryError
from .messages.regions import RegionError
from .messages.wire import Channel, Message
from .requests import InferenceRequest, decode_request
from .responses import EncodedResponse, InferenceResponse, encode_response
from .runtime import Runtime
from .senders import InferenceResponseSender, State
from .sequences import Sequences
from .states import EncodedState, States
from .tensors.tensors import EncodedTensor
from .transmitter import SocketTransmitter

BEGUN = 0
"""Where it says which batch was begun last."""

DROP_FROM, DROP_TO = 1, 2
"""Where the server says which batches it has taken back: from this number, up to and without that one."""


_NOT_ITERATIVE = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle "
    "such a flag. It needs sequence_batching { iterative_sequence: true }"
)


class Executions:
    """What runs the batches of one model, and where their requests come from.

    Attributes:
        memory: of the tensors.
        decoupled: whether the model may send any number of responses.
        transmitter: what brings responses to the server.
        states: what is kept for sequences, None if the model has no implicit state.
        request_class: what requests are made of.
    """

    request_class: Type[InferenceRequest] = InferenceRequest

    def __init__(
        self,
        runtime: Runtime,
        model: Any,
        progress: np.ndarray,
        concurrency: int,
        states: Sequence[EncodedState] = (),
    ) -> None:
        """Executions of a model.

        Args:
            runtime: the process.
            model: an instance of `TritonPythonModel`, initialized.
            progress: int64 numbers that the server sees and writes: see `BEGUN`, `DROP_FROM` and `DROP_TO`.
            concurrency: how many coroutines of a model that is not decoupled run at once.
            states: what the model keeps for sequences.
        """
        assert runtime.work is not None
        self.memory: Memory = runtime.memory
        self.decoupled = runtime.decoupled
        self.transmitter = SocketTransmitter(runtime.work, runtime.memory)
        self._sequences = Sequences(runtime, model, states)
        self.states = self._sequences.states
        self._runtime = runtime
        self._work: Channel = runtime.work
        self._model = model
        self._progress = progress.data  # an array's elements take three times as long to get
        self._concurrency = concurrency
        self._prefix = f"Failed to process the request(s) for model '{runtime.instance_name}', message: "
        self._running: Dict[int, List[InferenceRequest]] = {}  # by the number of the first
        self._senders: weakref.WeakValueDictionary[int, InferenceResponseSender] = (
            weakref.WeakValueDictionary()
        )
        self._watched: Set[int] = set()  # segments that something viewed beyond its execution
        self._watching = threading.Lock()  # of what is watched, until the server is told
        self._cancelled: Set[int] = set()  # requests, perhaps not begun yet

    # From the main thread

    def run(self, message: Message) -> None:
        """Run a batch. Its result is sent when this returns, or, of a coroutine that others run beside, later."""
        _, first, encoded, given_back, segments = message
        if given_back:
            self.memory.give_back(given_back)
        progress = self._progress
        # In this order: the server says first what it takes back, then looks at what was begun. What it may have seen
        # as begun is not its own again before it is told.
        progress[BEGUN] = first
        if progress[DROP_FROM] <= first < progress[DROP_TO]:
            self._work.send((wire.DROPPED, first))
            return
        outcome = self._execute(first, encoded, segments)
        if outcome is not None:
            self._conclude(first, segments, outcome)

    @property
    def wants_ends(self) -> bool:
        """Whether it is to be told of sequences that have ended."""
        return self._sequences.wanted

    def end_sequences(self, ended: "List[Tuple[int, Any, str]]") -> None:
        """Sequences have ended; each with its key, correlation id and reason."""
        for key, correlation_id, reason in ended:
            self._sequences.end(key, correlation_id, reason)

    def idle(self) -> bool:
        """Tell the server what is no longer held, and give back free memory: whether there may be more to do later."""
        if self._watched:
            with self._watching:
                held = self.memory.held(self._watched)
                if len(held) < len(self._watched):
                    self._watched = set(held)
                    self._work.send((wire.HELD, held))
        release()
        gone = self.memory.trim()
        if gone and self._runtime.control is not None:
            self._runtime.control.send((wire.GONE, gone))
        return self.busy

    @property
    def busy(self) -> bool:
        """Whether there is something to do when nothing is to be run for a while."""
        return bool(self._watched) or answers.pending or self.memory.has_segments

    # From the thread of the control socket

    def cancel(self, number: int) -> None:
        """The client of that request is gone."""
        self._cancelled.add(number)  # before it is looked for: whoever is about to begin it looks there
        sender = self._senders.get(number)
        if sender is not None:
            sender._cancel()
        for first, requests in list(self._running.items()):
            if first <= number < first + len(requests):
                requests[number - first]._cancel()

    def credit(self, number: int, responses: int) -> None:
        """The server took so many responses to that request."""
        sender = self._senders.get(number)
        if sender is not None:
            sender.credit(responses)

    # One execution

    def _execute(
        self, first: int, encoded: "List[Tuple[Any, ...]]", segments: Sequence[int]
    ) -> Optional[Message]:
        """Run the batch: RESULT or BATCH_FAILED but for what is held; None if it will be concluded later."""
        requests = [decode_request(request, self) for request in encoded]
        self._running[first] = requests
        if self.decoupled:
            for request in requests:
                self._senders[request._number] = request.get_response_sender()
        if self._cancelled:
            self._heed_cancelled(first, requests)
        began = monotonic_ns()
        try:
            if self._sequences.wanted:
                self._sequences.begin(requests)
            returned = self._model.execute(requests)
            if type(returned) is not list and isinstance(returned, Coroutine):
                if self.decoupled and not self._runtime.iterative:
                    self._runtime.spawn(self._stream(requests, returned))
                    returned = None
                elif not self.decoupled and (self._concurrency > 1 or not self._runtime.waits):
                    self._runtime.spawn(self._await(first, requests, segments, began, returned))
                    return None
                else:
                    future = self._runtime.spawn(returned)
                    failure = future.exception()
                    if failure is not None:  # not raised again, which would add the waiting to where it was
                        return self._failed(first, requests, began, failure)
                    returned = future.result()
            return self._answer(first, requests, began, returned)
        except BaseException as error:
            return self._failed(first, requests, began, error)

    def _heed_cancelled(self, first: int, requests: List[InferenceRequest]) -> None:
        """Tell the requests that were cancelled before their execution began."""
        for number in list(self._cancelled):
            if number < first + len(requests):
                self._cancelled.discard(number)
                if number >= first:
                    requests[number - first]._cancel()

    async def _await(
        self,
        first: int,
        requests: List[InferenceRequest],
        segments: Sequence[int],
        began: int,
        coroutine: Any,
    ) -> None:
        """Conclude a batch whose `execute` runs beside others."""
        try:
            outcome = self._answer(first, requests, began, await coroutine)
        except BaseException as error:
            outcome = self._failed(first, requests, began, error)
        del coroutine
        requests.clear()
        self._conclude(first, segments, outcome)

    async def _stream(self, requests: List[InferenceRequest], coroutine: Any) -> None:
        """See a decoupled model's coroutine to its end: if it fails, what it left open fails."""
        try:
            returned = await coroutine
            if returned is None:
                return
            text = self._must_be_none()
        except BaseException as error:
            text = describe(error)
        text = self._prefix + text
        log_failure(self._runtime, text)
        error_response = InferenceResponse(error=TritonError(text))
        for request in requests:
            sender = request.get_response_sender()
            if sender.state in (State.UNANSWERED, State.ANSWERED):
                sender.close()
                self.transmitter.transmit(request._number, error_response, True)

    def _answer(self, first: int, requests: List[InferenceRequest], began: int, returned: Any) -> Message:
        """What `execute` returned, as a message."""
        ended = monotonic_ns()
        if self.decoupled:
            if returned is not None:
                raise _ContractError(self._must_be_none())
            again = [self._comes_again(request) for request in requests if request._rescheduled]
            marks = [wire.AGAIN if each._rescheduled else None for each in requests] if any(again) else []
            return wire.RESULT, first, began, ended, marks
        if returned is None:
            returned = [None] * len(requests)
        if type(returned) is not list and not isinstance(returned, list):
            raise _ContractError(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != len(requests):
            raise _ContractError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        outgoing = self.memory.outgoing()
        answers: List[Union[EncodedResponse, Tuple[()], None]] = []
        kept, returned = (
            ([], returned) if self.states is None else _take_states(self.states, requests, returned)
        )
        for request, response in zip(requests, returned):
            if type(response) is InferenceResponse and request._sender is None and not request._rescheduled:
                answers.append(encode_response(response, request._wanted, outgoing, request._placements))
            else:
                answers.append(self._irregular(request, response, outgoing))
        message = (wire.RESULT, first, began, ended, answers)
        if outgoing.fresh:
            # announced by a message of its own, since what is held is known only when all this is gone
            self._work.announce(outgoing.fresh)
        for key, taken in kept:  # now that nothing can fail any more
            self.states.keep(key, taken)  # type: ignore[union-attr] # else nothing was taken
        return message

    def _irregular(
        self, request: InferenceRequest, response: Any, outgoing: Outgoing
    ) -> "Union[EncodedResponse, Tuple[()], None]":
        """The answer to a request that has a sender, or for which `execute` returned no response.

        None if the sender has answered, or still may; `wire.AGAIN` if the request is to come again.
        """
        sender = request._sender
        if response is None:
            if request._rescheduled:
                if self._runtime.iterative:
                    if sender is not None:
                        sender.close()
                    return wire.AGAIN
                return _error(_NOT_ITERATIVE, TritonError.INVALID_ARG)
            if sender is None:
                return _error(
                    self._prefix + "the execute function returned None for a request and never asked for its "
                    "response sender, so nothing can answer it; return an InferenceResponse"
                )
            if sender.state in (State.UNANSWERED, State.ANSWERED):
                self._senders[request._number] = sender
            return None
        if request._rescheduled:
            raise _ContractError(
                "Expected a None object in the execute function return list for reschduled request, "
                f"found type '{type(response)}'."
            )
        if not isinstance(response, InferenceResponse):
            raise _ContractError(
                "Expected an 'InferenceResponse' object in the execute function return list, "
                f"found type '{type(response)}'."
            )
        if sender is not None:
            answered = sender.state is not State.UNANSWERED
            sender.close()
            if answered:
                return None
        return encode_response(response, request._wanted, outgoing, request._placements)

    def _comes_again(self, request: InferenceRequest) -> bool:
        """Whether a request of a decoupled model that was released to come again does; its sender is closed."""
        sender = request.get_response_sender()
        if sender.state not in (State.UNANSWERED, State.ANSWERED):
            request._rescheduled = False  # it had its last response
            return False
        sender.close()
        if not self._runtime.iterative:
            request._rescheduled = False
            error = TritonError(_NOT_ITERATIVE, TritonError.INVALID_ARG)
            self.transmitter.transmit(request._number, InferenceResponse(error=error), True)
        return request._rescheduled

    def _failed(
        self, first: int, requests: List[InferenceRequest], began: int, error: BaseException
    ) -> Message:
        number: Optional[int] = None
        if isinstance(error, PlainError):
            text, number = str(error), error.number
        else:
            told = isinstance(error, (_ContractError, SharedMemoryError, RegionError))
            text = self._prefix + (str(error) if told else describe(error))
        for request in requests:
            if request._sender is not None:
                request._sender.close()
        chained: Optional[BaseException] = error
        while chained is not None:
            chained.__traceback__ = None  # its frames hold the requests
            chained = chained.__cause__ or chained.__context__
        return wire.BATCH_FAILED, first, began, monotonic_ns(), text, number

    def _must_be_none(self) -> str:
        model = self._runtime.instance_name
        return (
            f"Python model '{model}' is using the decoupled mode and the execute function must return None."
        )

    def _conclude(self, first: int, segments: Sequence[int], outcome: Message) -> None:
        """Send what came of a batch, with the segments that something still views."""
        self._running.pop(first, None)
        if self.memory.regions:
            self.memory.detach()
        with self._watching:
            if segments or self._watched:
                held = self.memory.held(self._watched.union(segments))
                self._watched = set(held)
                self._work.send((*outcome, held))
            else:
                self._work.send((*outcome, ()))


class _ContractError(Exception):
    """The model did something that the contract of `execute` does not allow; the text says what."""


def _take_states(
    states: States, requests: List[InferenceRequest], returned: List[Any]
) -> "Tuple[List[Tuple[int, Dict[str, EncodedTensor]]], List[Any]]":
    """What `execute` returned holds of states, by sequence, and what it returned: errors where those are wrong."""
    kept = []
    responses = returned[:]
    for place, (request, response) in enumerate(zip(requests, returned)):
        answered = request._sender is not None and request._sender.state is not State.UNANSWERED
        if answered or not isinstance(response, InferenceResponse):
            continue
        try:
            kept.append((request._sequence_key, states.take(response)))
        except TritonModelException as error:
            responses[place] = InferenceResponse(error=TritonError(str(error)))
    return kept, responses


def _error(text: str, code: Any = TritonError.INTERNAL) -> EncodedResponse:
    return (), "", (int(code), text)
