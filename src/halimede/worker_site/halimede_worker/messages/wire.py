"""Messages between the server and a worker: tuples, one a packet, on a Unix socket that keeps packets apart.

A message is a tuple whose first item says what it is; the rest are numbers, texts, bytes, None, tuples, lists and
dicts of these. It is written by `marshal` in a format that all supported versions of Python share: both ends are
this project's, and no other codec is as fast. Any number of threads may send on one socket; a packet arrives whole.

The sockets of a worker:

* *work*: what to run, and what came of it. The worker's main thread reads it.
* *control*: what may be said at any time. A thread of its own reads it.
* *calls*: one for each call (BLS, models, metrics) that runs at the same time; made as they are needed.
"""

import marshal
import os
import socket
import struct
from array import array
from time import monotonic_ns
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from .memory import Announced, Memory, Outgoing, Reference

Message = Tuple[Any, ...]

PACKET_BYTES = 131072
"""A longer message travels in shared memory."""

FORMAT = 2
"""`marshal`'s format before it looked for repeated objects, which costs more than it saves."""

# Frames
ANNOUNCE = -1  # numbers and sizes of new segments, the message that needs them; with their descriptors
SPILLED = -2  # where in shared memory the message lies

# On the work socket, to the worker
INITIALIZE = 1  # arguments of `initialize`, numbers that both see, concurrency, states of sequences
COMPLETE_CONFIG = 2  # configuration as JSON
EXECUTE = 3  # batch number, requests, numbers of segments given back, and of those in which its tensors lie
FINALIZE = 4
FORGET = 5  # numbers of the server's segments that are no more
SEQUENCES_ENDED = 6  # of each its key, correlation id and reason

# On the work socket, from the worker
DONE = 10  # a value
FAILED = 11  # why, the number of the error's kind
RESULT = 12  # batch number, start and end in monotonic ns, responses or AGAIN, numbers of segments still held
BATCH_FAILED = (
    13  # batch number, start and end, why, number of the error's kind or None, numbers of segments still held
)
RESPONSE = 14  # request number, response or None, final
ABANDONED = 15  # request number: its sender is gone, and never said final
DROPPED = 18  # batch number: it was taken back before it was run
RESPONSES = 19  # several of what a RESPONSE says
HELD = 16  # numbers of segments still held
RELEASED = (
    17  # segments of answers to calls that nothing views any more: pairs of number and how often it came
)

COUNTED = 29  # requests with first tokens: number and time; and the other items of `TextCounts`

AGAIN: Tuple[()] = ()
"""In place of a response: the request is to come again. None for one that was, or will be, sent by itself."""

# On the control socket, to the worker
CANCEL = 20  # request number
CREDIT = 21  # request number, how many more responses may be sent
READY = 22  # probe number
GIVE_BACK = 23  # numbers of the worker's segments
STACK = 24  # answered by STACK_IS

# On the control socket, from the worker
LOG = 30  # level, file name, line, text
OPEN = 31  # process id; with the descriptor of a new socket for calls
IS_READY = 32  # probe number, whether, why not
STACK_IS = 33  # where the model's Python code is
GONE = 34  # numbers of the worker's segments that it let go of
METRIC = 35  # series, operation, value
DROP_FAMILY = 36  # family
DROP_SERIES = 37  # series

# On a socket for calls, to the server; the others than INFER, LEAVE and STOP are answered by one DONE or FAILED
INFER = 40  # number, request, decoupled, whether the thread that runs `execute` waits; answered by ANSWERs
LOAD_MODEL = 41  # name, configuration as JSON or "", files: path → bytes, or None
UNLOAD_MODEL = 42  # name, whether dependents too
MODEL_READY = 43  # name, version as text
NEW_FAMILY = 44  # name, description, kind
NEW_SERIES = 45  # family, labels as list of pairs, buckets or None
METRIC_VALUE = 46  # series
STOP = 50  # number: cancels that inference; its answers are still wanted
LEAVE = 51  # number, whether to cancel it: nobody wants its answers any more

# On a socket for calls, from the server
ANSWER = 52  # number, response or None, final, numbers of segments given back, numbers of segments that are no more


class ClosedError(Exception):
    """The other end of the socket is gone."""


class Channel:
    """One end of a socket, used with blocking calls: `send` from any thread, `receive` from one at a time."""

    def __init__(self, sock: socket.socket, memory: Memory) -> None:
        self.socket = sock
        self.memory = memory
        self._timeout: Optional[float] = None
        self._buffer = bytearray(PACKET_BYTES + 64)
        self._view = memoryview(self._buffer)

    def send(self, message: Message, fresh: Sequence[Announced] = (), descriptor: int = -1) -> None:
        """Send a message, with the segments that it needs and the other side does not know.

        Raises:
            ClosedError: the other end is gone.
            MemoryError: the message is long, and there is no shared memory for it.
        """
        data = marshal.dumps(message, FORMAT)
        if len(data) > PACKET_BYTES - 4096 or len(fresh) > 200:
            data, fresh = self._spill(data, fresh)
        try:
            if fresh or descriptor >= 0:
                self._send_with(data, fresh, descriptor)
            else:
                self.socket.send(data)
        except OSError as error:
            raise ClosedError from error

    def announce(self, fresh: Sequence[Announced]) -> None:
        """Let the other side know segments before the message that needs them, on this same socket."""
        for begin in range(0, len(fresh), 200):
            self._send_with(b"", fresh[begin : begin + 200], -1)

    def _spill(self, data: bytes, fresh: Sequence[Announced]) -> "Tuple[bytes, Sequence[Announced]]":
        if len(fresh) > 200:  # no packet carries so many descriptors
            self.announce(fresh)
            fresh = ()
        if len(data) <= PACKET_BYTES - 4096:
            return data, fresh
        outgoing = Outgoing(self.memory)
        reference = outgoing.put_bytes(data)
        return marshal.dumps((SPILLED, reference), FORMAT), [*fresh, *outgoing.fresh]

    def _send_with(self, data: bytes, fresh: Sequence[Announced], descriptor: int) -> None:
        descriptors = [segment.descriptor for segment in fresh]
        if descriptor >= 0:
            descriptors.append(descriptor)
        announced = [(segment.number, segment.size) for segment in fresh]
        data = marshal.dumps((ANNOUNCE, announced, data), FORMAT)
        rights = array("i", descriptors)
        self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def receive(self, timeout: Optional[float] = None) -> Message:
        """The next message.

        Raises:
            ClosedError: the other end is gone.
            socket.timeout: none came within `timeout` seconds.
        """
        if timeout != self._timeout:
            # by the kernel: Python's own would be one more system call for each message
            limit = struct.pack("@ll", int(timeout or 0), int((timeout or 0) % 1 * 1e6))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._timeout = timeout
        while True:
            try:
                message = self._receive(0)
            except BlockingIOError as error:
                raise socket.timeout from error
            if message is not None:
                return message

    def look(self, until_ns: int) -> Optional[Message]:
        """The next message if one comes until then, in monotonic ns. The processor is busy meanwhile.

        Raises:
            ClosedError: the other end is gone.
        """
        while True:
            try:
                message = self._receive(socket.MSG_DONTWAIT)
            except BlockingIOError:
                if monotonic_ns() >= until_ns:
                    return None
                os.sched_yield()  # to whoever shares the core after all
            else:
                if message is not None:
                    return message

    def _receive(self, flags: int) -> Optional[Message]:
        """A message, None if it was only about segments.

        Raises:
            BlockingIOError: none came.
            ClosedError: the other end is gone.
        """
        try:
            size, ancillary, _, _ = self.socket.recvmsg_into([self._buffer], 1024, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ClosedError from error
        if not size:
            raise ClosedError
        message: Message = marshal.loads(self._view[:size])
        if message[0] == ANNOUNCE:
            descriptors = received_descriptors(ancillary)
            self.memory.learn(message[1], descriptors)
            if not message[2]:
                return None
            message = marshal.loads(message[2])
        if message[0] == SPILLED:
            message = marshal.loads(self.memory.view(message[1]).data)
        return message

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def received_descriptors(ancillary: "List[Tuple[int, int, bytes]]") -> List[int]:
    """The file descriptors that came with a packet."""
    descriptors = array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)


def writable(payload: "bytes | Reference", memory: Memory) -> np.ndarray:
    """The bytes of a tensor out of a message, as an array that may be written to and outlives the message."""
    if isinstance(payload, bytes):
        return np.frombuffer(bytearray(payload), np.uint8)
    return memory.view(payload)
