"""How responses of senders get to the server: one by one, or several in one message."""

import os
import threading
from contextlib import contextmanager
from typing import Iterator, List, Optional, Sequence, Tuple

from .errors import TritonModelException
from .messages import wire
from .messages.memory import Memory
from .messages.wire import Channel
from .responses import EncodedResponse, InferenceResponse, encode_response


class _Gathered(threading.local):
    """What a thread sends together: number of the request, response or None, final. None while it does not."""

    responses: "Optional[List[Tuple[int, Optional[EncodedResponse], bool]]]" = None


class SocketTransmitter:
    """Brings the responses of senders to the server, through the work socket."""

    def __init__(self, work: Channel, memory: Memory) -> None:
        self._work = work
        self._memory = memory
        self._pid = os.getpid()
        self._gathered = _Gathered()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What this thread sends in the block goes as one message at its end. Nothing may be waited for in it."""
        self._gathered.responses = []
        try:
            yield
        finally:
            self._send_gathered()
            self._gathered.responses = None

    def transmit(
        self, number: int, response: Optional[InferenceResponse], final: bool, dropped: Sequence[str] = ()
    ) -> None:
        """Send a response to the request of that number, and the names of outputs that were taken out of it."""
        gathered = self._gathered.responses
        if response is None:
            if gathered is not None:
                gathered.append((number, None, final))
            else:
                self._work.send((wire.RESPONSE, number, None, final))
            return
        outgoing = self._memory.outgoing()
        try:
            encoded = encode_response(response, None, outgoing, dropped=dropped)
            if gathered is not None and not outgoing.fresh:
                gathered.append((number, encoded, final))
                return
            self._send_gathered()  # those before it, to which what is new in memory does not belong
            self._work.send((wire.RESPONSE, number, encoded, final), outgoing.fresh)
        except MemoryError as error:
            raise TritonModelException(f"Unable to send response. {error}") from None

    def _send_gathered(self) -> None:
        gathered = self._gathered.responses
        if gathered:
            self._work.send((wire.RESPONSES, gathered[:]) if gathered[1:] else (wire.RESPONSE, *gathered[0]))
            gathered.clear()

    def transmit_abandoned(self, number: int) -> None:
        """Say that nothing can answer the request any more."""
        if os.getpid() == self._pid:  # a child that the model forked has copies of its senders
            self._work.send((wire.ABANDONED, number))
