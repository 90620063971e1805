"""Shared memory for large tensors: segments that either process makes, and the other maps.

A segment is an anonymous file (memfd): it has no name, so nothing can be left behind, and it is not bound by the
size of /dev/shm. Whoever made it uses it again once the other side has given it back; how long a process needs it is
told by the reference count of its array, which every view counts up.
"""

import mmap
import os
import sys
import threading
from typing import Dict, Iterable, List, Optional, Protocol, Tuple

import numpy as np

from .. import descriptors
from .regions import FIRST_REGION, Piece, Region, RegionError

Reference = Tuple[int, int, int]
"""A piece of a segment: the segment's number, the offset and the length in bytes."""

SMALLEST = 1 << 20
"""Bytes of the smallest segment. Pages that nobody touched take no memory."""

ALIGNMENT = 64

_UNUSED = 3
"""References to an array that nobody views: a container's, a variable's, and the argument of `getrefcount`."""


NOT_ARRIVED = "shared memory did not arrive, as there are too many open files"


class Announced(Protocol):
    """What the other side is sent the descriptor of, with its number and its size."""

    number: int
    descriptor: int

    @property
    def size(self) -> int:
        """In bytes; of a region where it ends in its file."""


class SharedMemoryError(MemoryError):
    """There is no shared memory for a tensor or a message; the text says how much was wanted, and why not."""


class Segment(np.ndarray):
    """The memory of a segment as bytes; any view of it refers to it.

    Attributes:
        number: what both processes call it.
        descriptor: of the file.
    """

    number = 0
    descriptor = -1

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def create_segment(number: int, size: int) -> Segment:
    """A new segment of at least `size` bytes.

    Raises:
        MemoryError: there is not so much.
    """
    size = max(SMALLEST, 1 << (size - 1).bit_length() if size < 1 << 26 else -(-size // SMALLEST) * SMALLEST)
    try:
        descriptor = os.memfd_create("halimede", os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else _file()
        try:
            os.ftruncate(descriptor, size)
            return map_segment(number, size, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        why = descriptors.shortage() if descriptors.are_out(error) else error
        raise SharedMemoryError(f"cannot get {size} bytes of shared memory: {why}") from error


def map_segment(number: int, size: int, descriptor: int) -> Segment:
    """The segment in that file, which it closes in the end."""
    # straight over the map: a view of a view would refer to the map alone
    segment = Segment((size,), np.uint8, mmap.mmap(descriptor, size))
    segment.number = number
    segment.descriptor = descriptor
    return segment


def segment_of(array: np.ndarray) -> Optional[Segment]:
    """The segment that the array is a view of, if it is one."""
    base: object = array
    while base is not None:
        if type(base) is Segment:
            return base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None


def address(array: np.ndarray) -> int:
    """Where the array's elements begin."""
    begin: int = array.__array_interface__["data"][0]
    return begin


class Memory:
    """The shared memory of this process. Its methods may be called from any thread.

    Attributes:
        regions: clients' shared memory, by the number that the server gave each region.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._theirs: Dict[int, Segment] = {}
        self._unmapped: Dict[int, Tuple[int, int]] = {}  # theirs too; each with its size and descriptor
        self.regions: Dict[int, Region] = {}
        self._lent: Dict[int, Segment] = {}
        self._free: List[Segment] = []
        self._made = 0
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """In the child of a fork: what the parent may write to is not ours."""
        self._lock = threading.Lock()
        self._lent = {}
        self._free = []
        self._made = 0

    def outgoing(self) -> "Outgoing":
        """What collects the tensors of a message."""
        return Outgoing(self)

    def learn(self, announced: List[Tuple[int, int]], descriptors: List[int]) -> None:
        """Map the other side's segments, each announced with its number and size.

        One that cannot be mapped is tried again when it is viewed: the message itself can be answered.
        """
        for (number, size), descriptor in zip(announced, descriptors):
            if number >= FIRST_REGION:
                self.regions[number] = Region(size, descriptor)
                continue
            try:
                self._theirs[number] = map_segment(number, size, descriptor)
            except (OSError, MemoryError):
                self._unmapped[number] = size, descriptor

    def forget(self, numbers: List[int]) -> None:
        """The other side is rid of these segments."""
        for number in numbers:
            self._theirs.pop(number, None)
            self.regions.pop(number, None)
            if number in self._unmapped:
                os.close(self._unmapped.pop(number)[1])

    def view(self, reference: Reference) -> np.ndarray:
        """The bytes of a piece of the other side's segment, writable.

        Raises:
            SharedMemoryError: the segment could not be mapped.
        """
        number, offset, length = reference
        segment = self._theirs.get(number)
        if segment is None:
            segment = self._lent.get(number)  # ours, and back again
            if segment is None:
                segment = self._map_again(number)
        return segment.view(np.ndarray)[offset : offset + length]

    def piece(self, reference: Reference) -> "np.ndarray | Piece":
        """As `view`; the part of a region is not mapped before it is asked for.

        Raises:
            SharedMemoryError: the segment could not be mapped.
        """
        number, offset, length = reference
        if number < FIRST_REGION:
            return self.view(reference)
        return Piece(self._region(number), offset, length)

    def bytes_of(self, reference: Reference) -> np.ndarray:
        """As `view`, also of a region.

        Raises:
            SharedMemoryError: the segment could not be mapped.
            RegionError: the region could not be.
        """
        piece = self.piece(reference)
        return piece.take() if isinstance(piece, Piece) else piece

    def put_into_region(self, target: Reference, data: np.ndarray) -> Reference:
        """Write bytes into a part of a region: where they are then.

        Raises:
            RegionError: they cannot be written there.
            SharedMemoryError: the region did not arrive.
        """
        number, offset, room = target
        if data.nbytes > room:
            raise RegionError(f"{data.nbytes} bytes do not fit into {room}")
        self._region(number).put(offset, data)
        return number, offset, data.nbytes

    def detach(self) -> None:
        """What still views regions of clients keeps the bytes as they are now."""
        for region in list(self.regions.values()):
            region.detach()

    def _region(self, number: int) -> Region:
        region = self.regions.get(number)
        if region is None:
            raise SharedMemoryError(NOT_ARRIVED)
        return region

    def _map_again(self, number: int) -> Segment:
        if number not in self._unmapped:
            raise SharedMemoryError(NOT_ARRIVED)
        size, descriptor = self._unmapped[number]
        try:
            self._theirs[number] = segment = map_segment(number, size, descriptor)
        except (OSError, MemoryError) as error:
            raise SharedMemoryError(f"cannot map {size} bytes of shared memory: {error}") from error
        del self._unmapped[number]
        return segment

    def is_theirs(self, segment: Segment) -> bool:
        """Whether the other side has the segment, and will have it while a message to it is under way."""
        return self._theirs.get(segment.number) is segment

    def held(self, numbers: Iterable[int]) -> List[int]:
        """Those of the segments that came in a message that something here still views."""
        return [number for number in numbers if self._is_held(number)]

    def _is_held(self, number: int) -> bool:
        segment = self._theirs.get(number)
        if segment is None:
            segment = self._lent.get(number)
        return segment is not None and sys.getrefcount(segment) > _UNUSED

    def take(self, size: int) -> Tuple[Segment, bool]:
        """A segment of our own, at least so large, and whether the other side does not know it yet.

        Raises:
            MemoryError: there is not so much.
        """
        with self._lock:
            best = None
            for segment in self._free:
                if segment.size >= size and (best is None or segment.size < best.size):
                    best = segment
            if best is not None:
                self._free = [segment for segment in self._free if segment is not best]
                self._lent[best.number] = best
                return best, False
            self._made += 1
            number = -(os.getpid() << 24 | self._made)
            segment = create_segment(number, size)
            self._lent[number] = segment
            return segment, True

    def give_back(self, numbers: List[int]) -> None:
        """The other side is done with these segments of ours."""
        with self._lock:
            for number in numbers:
                segment = self._lent.pop(number, None)
                if segment is not None:
                    self._free.append(segment)

    @property
    def lent_bytes(self) -> int:
        """How many bytes of ours the other side has not given back."""
        with self._lock:
            return sum(segment.size for segment in self._lent.values())

    @property
    def has_segments(self) -> bool:
        """Whether it has memory that nobody needs, or that the other side will give back."""
        return bool(self._free or self._lent)

    def trim(self) -> List[int]:
        """Let go of what is free: the numbers of the segments that are gone."""
        with self._lock:
            gone, self._free = self._free, []
        return [segment.number for segment in gone]


class Outgoing:
    """The bytes of one message's tensors: small ones inside the message, large ones in shared memory.

    Attributes:
        fresh: segments that the message has to announce.
    """

    INLINE_BYTES = 16384
    """A tensor of more goes into shared memory."""

    MESSAGE_BYTES = 65536
    """Once so much is inside the message, all that follow go into shared memory."""

    __slots__ = ("_inside", "_memory", "_position", "_segment", "fresh")

    def __init__(self, memory: Memory) -> None:
        self.fresh: List[Announced] = []
        self._memory = memory
        self._inside = 0
        self._segment: Optional[Segment] = None
        self._position = 0

    def put(self, data: "np.ndarray", owner: object = None) -> "bytes | Reference":
        """The payload of a tensor for the message.

        Args:
            data: its elements, C-contiguous.
            owner: the tensor that has the array, if one does.

        Raises:
            MemoryError: there is no shared memory for it.
        """
        size = data.nbytes
        if size <= self.INLINE_BYTES and self._inside + size <= self.MESSAGE_BYTES:
            self._inside += size
            return data.tobytes()
        origin = segment_of(data)
        if origin is not None and self._memory.is_theirs(origin):  # the other side has these very bytes
            return origin.number, address(data) - address(origin), size
        return self.put_bytes(data.reshape(-1).view(np.uint8))

    def into(self, target: Reference) -> "RegionOutput":
        """What takes the bytes of one tensor into a part of a client's region, and else does as this does."""
        return RegionOutput(self, self._memory, target)

    def put_buffer(self, data: "bytes | bytearray | memoryview") -> "bytes | Reference":
        """As `put`, of any buffer."""
        size = len(data)
        if size <= self.INLINE_BYTES and self._inside + size <= self.MESSAGE_BYTES:
            self._inside += size
            return bytes(data)
        return self.put(np.frombuffer(data, np.uint8))

    def put_bytes(self, data: "np.ndarray | bytes | memoryview") -> Reference:
        """Bytes in shared memory.

        Raises:
            MemoryError: there is none for them.
        """
        size = len(data)
        if self._segment is None or self._position + size > self._segment.size:
            self._segment, new = self._memory.take(size)
            self._position = 0
            if new:
                self.fresh.append(self._segment)
        begin = self._position
        target = self._segment.view(np.ndarray)[begin : begin + size]
        target[:] = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        self._position = begin + -(-size // ALIGNMENT) * ALIGNMENT
        return self._segment.number, begin, size


class RegionOutput:
    """The bytes of an output on their way into a client's region, where they go without passing through the server.

    Where they cannot, they go to the server, which tells the client why.
    """

    __slots__ = ("_memory", "_others", "_target")

    def __init__(self, others: Outgoing, memory: Memory, target: Reference) -> None:
        self._others = others
        self._memory = memory
        self._target = target

    def put(self, data: "np.ndarray", owner: object = None) -> "bytes | Reference":
        """Write the elements; where they are then."""
        if not data.nbytes:
            return b""
        try:
            return self._memory.put_into_region(self._target, data)
        except MemoryError:
            return self._others.put(data)

    def put_buffer(self, data: "bytes | bytearray | memoryview") -> "bytes | Reference":
        """As `put`, of any buffer."""
        return self.put(np.frombuffer(data, np.uint8))


def _file() -> int:
    """An unnamed file in memory, for a Python that was built without memfd."""
    import tempfile

    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        return os.dup(file.fileno())
