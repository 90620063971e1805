"""Shared memory as the server sees it: which segments a worker's process knows, and who still needs which."""

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from halimede.core.buffers import POOL
from halimede.core.datatypes import BY_NUMBER, Datatype
from halimede.core.regions import Piece, RegionTensor, SystemRegion
from halimede.core.tensors import Buffer, Tensor
from halimede_worker.messages.memory import (
    NOT_ARRIVED,
    Outgoing,
    Reference,
    Segment,
    SharedMemoryError,
    address,
    map_segment,
    segment_of,
)
from halimede_worker.messages.regions import FIRST_REGION

Encoded = tuple[str, int, tuple[int, ...], Any, bool]
"""A tensor in a message: name, number of the datatype, shape, bytes or where they lie, whether it is shared."""

_UNUSED = 3
"""References to a segment that nobody views: a container's, a variable's, and the argument of `getrefcount`."""


_PERMANENT = 1
"""A worker knows the segment of its progress until it ends."""


class PeerMemory:
    """What one process on the other side of a socket shares with the server. Lives on the event loop.

    Attributes:
        on_forgettable: called when a region that it knows is no more.
    """

    def __init__(self, parent: "PeerMemory | None" = None) -> None:
        """Nothing yet; for a process that another one forked, beside what that `parent` shares."""
        self._parent = parent
        self.on_forgettable: Callable[[], None] = _nothing
        self._theirs: dict[int, Segment] = {}
        self._lent: set[int] = set()  # theirs that something here may view
        self._known: dict[int, weakref.ref[Segment]] = {}  # ours, or another process's, that it has mapped
        self._regions: dict[int, SystemRegion] = {}  # of clients, that it knows
        self._held: dict[int, Segment] = {}  # what it views beyond the answer
        self._answered: dict[int, tuple[Segment, int]] = {}  # what answers to its calls lie in, and how many

    def learn(self, announced: Sequence[tuple[int, int]], descriptors: Sequence[int]) -> None:
        """Map segments that it made, each announced with its number and size.

        One that did not arrive, or cannot be mapped, is missed by who views it.
        """
        for (number, size), descriptor in zip(announced, descriptors, strict=False):
            try:
                self._theirs[number] = map_segment(number, size, descriptor)
            except (OSError, MemoryError):
                os.close(descriptor)

    def view(self, reference: Reference) -> memoryview:
        """The bytes of a piece of a segment that it made, or of one that was sent to it.

        Raises:
            SharedMemoryError: it made the segment, and that could not be mapped here.
        """
        number, offset, length = reference
        segment = self._theirs.get(number)
        if segment is None:
            if number not in self._known:
                if self._parent is None:
                    raise SharedMemoryError(f"{length} bytes of {NOT_ARRIVED} or too little memory")
                return self._parent.view(reference)
            segment = self._mapped(number)
        else:
            self._lent.add(number)
        return segment.data[offset : offset + length]

    def made(self, reference: Reference) -> bool:
        """Whether it is a piece of a segment that it made itself."""
        return reference[0] in self._theirs

    def _mapped(self, number: int) -> Segment:
        segment = self._known[number]()
        assert segment is not None, "a segment lives while a message with it is under way"
        return segment

    def tensor(self, encoded: Encoded) -> Tensor:
        """The tensor, as a view."""
        _, number, shape, payload, _ = encoded
        if type(payload) is bytes:
            data: Buffer = payload
        elif payload[0] >= FIRST_REGION:
            return self._region_tensor(BY_NUMBER[number], shape, payload)
        else:
            data = self.view(payload)
        return Tensor(BY_NUMBER[number], shape, data)

    def _region_tensor(
        self, datatype: Datatype, shape: tuple[int, ...], reference: Reference
    ) -> RegionTensor:
        """An output that it has written to a client's region."""
        number, offset, length = reference
        return RegionTensor(datatype, shape, Piece(self._regions[number], offset, length))

    def outgoing(self) -> "ServerOutgoing":
        """What collects the tensors of a message to it."""
        return ServerOutgoing(self)

    def take(self, size: int) -> tuple[Segment, bool]:
        """A segment of ours, and whether it does not know it yet."""
        segment = POOL.segment(size)
        return segment, self.introduce(segment)

    def introduce(self, segment: Segment) -> bool:
        """Note that it is about to be sent the segment: whether it does not know it yet."""
        if segment.number in self._known or segment.number in self._theirs:
            return False
        self._known[segment.number] = weakref.ref(segment)
        return True

    def introduce_region(self, region: SystemRegion) -> bool:
        """Note that it is about to be sent the region: whether it does not know it yet."""
        if region.number in self._regions:
            return False
        self._regions[region.number] = region
        region.on_close.add(self._region_closed)
        return True

    def _region_closed(self) -> None:
        self.on_forgettable()

    def hold(self, numbers: Iterable[int]) -> None:
        """It views these segments beyond the answers to the messages that they came in, and no others."""
        theirs = self._theirs
        self._held = {n: theirs[n] if n in theirs else self._mapped(n) for n in numbers}

    @property
    def holds(self) -> bool:
        """Whether it views a segment beyond the answer to its message."""
        return bool(self._held)

    def answered(self, segments: Iterable[Segment]) -> None:
        """A call that it made is answered with these segments; each lives until it is `released` as often."""
        for number, segment in {segment.number: segment for segment in segments}.items():
            self._answered[number] = segment, self._answered.get(number, (segment, 0))[1] + 1

    def released(self, counts: Iterable[tuple[int, int]]) -> None:
        """It views these segments of answers to calls no more; each came as often as is said."""
        for number, count in counts:
            segment, left = self._answered.pop(number)
            if left > count:
                self._answered[number] = segment, left - count

    def unused(self) -> Sequence[int]:
        """Those of its segments that nothing here views any more, each told once."""
        if not self._lent:
            return ()
        unused = [number for number in self._lent if self._is_unused(number)]
        self._lent.difference_update(unused)
        return unused

    def _is_unused(self, number: int) -> bool:
        segment = self._theirs.get(number)
        return segment is None or sys.getrefcount(segment) == _UNUSED

    @property
    def untidy(self) -> bool:
        """Whether there is, or may be in a while, something for it to give back or to forget."""
        return bool(self._lent) or len(self._known) > _PERMANENT

    def gone(self, numbers: Iterable[int]) -> None:
        """It let go of these segments of its own."""
        for number in numbers:
            self._theirs.pop(number, None)
            self._lent.discard(number)

    def close(self) -> None:
        """The process is gone: let go of what it shared. What views a segment keeps it."""
        self._theirs.clear()
        self._lent.clear()
        self._known.clear()
        for region in self._regions.values():
            region.on_close.discard(self._region_closed)
        self._regions.clear()
        self._held.clear()
        self._answered.clear()

    def forgettable(self) -> list[int]:
        """Segments and regions that it knows and that are no more, each told once: it may unmap them."""
        numbers = [number for number, reference in self._known.items() if reference() is None]
        for number in numbers:
            del self._known[number]
        closed = [number for number, region in self._regions.items() if region.closed]
        for number in closed:
            del self._regions[number]
        return numbers + closed


def _nothing() -> None:
    """A process that calls from a fork is told with each answer."""


class ServerOutgoing(Outgoing):
    """The bytes of one message's tensors on their way to a worker.

    Attributes:
        segments: where large ones lie; they must live until the answer has come.
    """

    __slots__ = ("_peer", "segments")

    def __init__(self, peer: PeerMemory) -> None:
        super().__init__(peer)  # type: ignore[arg-type] # of a Memory, it takes segments only
        self._peer = peer
        self.segments: list[Segment] = []

    def tensor(self, name: str, tensor: Tensor) -> Encoded:
        """The tensor for the message."""
        if type(tensor) is RegionTensor and not tensor.is_read:
            return (name, tensor.datatype.number, tensor.shape, self.piece(tensor.piece), tensor.shared)
        data = tensor.data
        size = len(data)
        payload: Buffer | Reference = data
        if size > self.INLINE_BYTES or self._inside + size > self.MESSAGE_BYTES:
            payload = self.place(data)
        else:
            self._inside += size
        return (name, tensor.datatype.number, tensor.shape, payload, tensor.shared)

    def piece(self, piece: Piece) -> Reference:
        """Where a part of a client's region is."""
        if self._peer.introduce_region(piece.region):
            self.fresh.append(piece.region)
        return piece.region.number, piece.offset, piece.length

    def place(self, data: Buffer) -> Reference:
        """The bytes in shared memory: where they are, if they are in it already.

        Raises:
            MemoryError: there is none for them.
        """
        view = memoryview(data)
        origin = segment_of(view.obj) if isinstance(view.obj, np.ndarray) else None
        if origin is None:
            reference = self.put_bytes(view)
            assert self._segment is not None
            self.segments.append(self._segment)
            return reference
        if self._peer.introduce(origin):
            self.fresh.append(origin)
        self.segments.append(origin)
        return origin.number, address(np.frombuffer(view, np.uint8)) - address(origin), len(view)
