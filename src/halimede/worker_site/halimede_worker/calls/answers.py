"""Answers to inferences, and the shared memory that came with them: it is the server's again once nothing views it."""

import os
import threading
from typing import Any, Dict, Optional, Tuple

from ..messages import wire
from ..responses import EncodedResponse, InferenceResponse, decode_response
from ..runtime import runtime


class Answers:
    """Opens ANSWERs, and remembers how often each segment came with one. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Dict[int, int] = {}
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """In the child of a fork: what came before is the parent's to release."""
        self._lock = threading.Lock()
        self._counts = {}

    def open(self, answer: Tuple[Any, ...]) -> Optional[InferenceResponse]:
        """The response in an ANSWER, None if there is none."""
        encoded = answer[2]
        response = None if encoded is None else decode_response(encoded, runtime.memory)
        self.drop(answer)  # only now: what is remembered and not viewed is released
        return response

    def drop(self, answer: Tuple[Any, ...]) -> None:
        """See to the memory of an ANSWER."""
        _, _, encoded, _, given_back, gone = answer
        if given_back:
            runtime.memory.give_back(given_back)
        if gone:
            runtime.memory.forget(gone)
        if encoded is not None:
            self._memoize(encoded)

    def _memoize(self, encoded: EncodedResponse) -> None:
        numbers = {payload[0] for _, _, _, payload, _ in encoded[0] if type(payload) is tuple}
        if numbers:
            with self._lock:
                for number in numbers:
                    self._counts[number] = self._counts.get(number, 0) + 1

    @property
    def pending(self) -> bool:
        """Whether there are segments to release, sooner or later."""
        return bool(self._counts)

    def release(self, channel: wire.Channel) -> None:
        """Tell the server which of the segments nothing views any more.

        Args:
            channel: the work socket, so that it is read after the results that were sent before; in a child of the
                worker, any socket for calls.

        Raises:
            ClosedError: the server is gone.
        """
        if not self.pending:
            return
        with self._lock:
            held = set(runtime.memory.held(list(self._counts)))
            released = [(number, count) for number, count in self._counts.items() if number not in held]
            for number, _ in released:
                del self._counts[number]
        if released:
            channel.send((wire.RELEASED, released))


answers = Answers()
