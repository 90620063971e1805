"""What an instance of a Python model knows of sequences: their states, and whom to tell that one has ended."""

import asyncio
from collections.abc import Coroutine
from typing import Any, List, Optional, Sequence, Set, Union

from .calls.logger import log_failure
from .errors import describe
from .requests import InferenceRequest
from .runtime import Runtime
from .states import EncodedState, States

START = 1
"""The flag of a sequence's first request."""

HOOK = "on_sequence_end"


class Sequences:
    """The sequences of one instance.

    Attributes:
        states: what is kept for them, None if the model has no implicit state.
        wanted: the server is to tell when a sequence ends.
    """

    def __init__(self, runtime: Runtime, model: Any, states: Sequence[EncodedState]) -> None:
        self.states: Optional[States] = States(states) if states else None
        self._runtime = runtime
        self._hook = getattr(model, HOOK, None)
        self._known: Set[int] = set()  # those that began here, and not in a process before this one
        self.wanted = self._hook is not None or bool(states)

    def begin(self, requests: List[InferenceRequest]) -> None:
        """The requests are about to be executed: give them their states."""
        states = self.states
        for request in requests:
            key = request._sequence_key
            if key and self._hook is not None:
                self._known.add(key)
            if states is not None:
                request._encoded_inputs += states.inputs(key, bool(request._flags & START))

    def end(self, key: int, correlation_id: Union[int, str], reason: str) -> None:
        """A sequence has ended: forget it, and tell the model. Called on the main thread."""
        if self.states is not None:
            self.states.end(key)
        if key not in self._known:
            return
        self._known.discard(key)
        assert self._hook is not None, "else none is known"
        try:
            returned = self._hook(correlation_id, reason)
            if isinstance(returned, Coroutine):
                asyncio.run_coroutine_threadsafe(returned, self._runtime.event_loop()).result()
        except BaseException as error:
            log_failure(
                self._runtime, f"{HOOK} of model '{self._runtime.instance_name}' failed: {describe(error)}"
            )
