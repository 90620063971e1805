"""Tensors in regions of shared memory that clients have registered.

The server never maps such a region: whoever reads a mapping of a file that its owner cuts short dies of SIGBUS. It
reads and writes the file instead, and passes its descriptor to worker processes, which do map it.
"""

import os
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from halimede.core.buffers import POOL
from halimede.core.datatypes import Datatype
from halimede.core.errors import InvalidArgumentError, OutOfMemoryError, UnavailableError
from halimede.core.tensors import Array, Buffer, Tensor
from halimede_worker.messages.regions import FIRST_REGION, read_at, write_at

_numbers = count(FIRST_REGION)


class Region:
    """A registered region of any memory. Lives on the event loop.

    Attributes:
        name: what clients call it.
        byte_size: its length.
        closed: nobody uses it any more.
        on_close: called when that is so.
    """

    __slots__ = ("_uses", "byte_size", "closed", "name", "on_close")

    def __init__(self, name: str, byte_size: int) -> None:
        self.name = name
        self.byte_size = byte_size
        self.closed = False
        self.on_close: set[Callable[[], None]] = set()
        self._uses = 1  # by its registration, and by each request

    def acquire(self) -> None:
        """A request uses it."""
        self._uses += 1

    def release(self) -> None:
        """A request uses it no more, or it is registered no more."""
        self._uses -= 1
        if not self._uses:
            self.closed = True
            for tell in self.on_close:
                tell()

    def check_range(self, offset: int, length: int) -> None:
        """See that a part of it is inside it.

        Args:
            offset: where the part begins in the region.
            length: how many bytes it has.

        Raises:
            InvalidArgumentError: it is not, or it is empty.
        """
        if not 0 <= offset < self.byte_size:
            raise InvalidArgumentError(f"Invalid offset for shared memory region: '{self.name}'")
        if not 0 < length <= self.byte_size - offset:
            raise InvalidArgumentError(f"Invalid offset + byte size for shared memory region: '{self.name}'")


class SystemRegion(Region):
    """A region of system shared memory: a part of a file.

    Attributes:
        key: of the file.
        offset: where it begins in the file.
        size: where it ends in the file.
        number: what worker processes call it.
        descriptor: of the file.
    """

    __slots__ = ("descriptor", "key", "number", "offset", "size")

    def __init__(self, name: str, key: str, offset: int, byte_size: int, descriptor: int) -> None:
        """The region in the file `descriptor`, which it closes in the end."""
        super().__init__(name, byte_size)
        self.key = key
        self.offset = offset
        self.size = offset + byte_size
        self.number = next(_numbers)
        self.descriptor = descriptor
        self.on_close.add(self._close)

    def _close(self) -> None:
        os.close(self.descriptor)

    def piece(self, offset: int, length: int) -> "Piece":
        """A part of it; see `check_range`.

        Raises:
            InvalidArgumentError: it is not inside the region, or empty.
        """
        self.check_range(offset, length)
        return Piece(self, self.offset + offset, length)


class Piece(NamedTuple):
    """A part of a region.

    Attributes:
        region: the region.
        offset: where it begins in the file.
        length: how many bytes it has.
    """

    region: SystemRegion
    offset: int
    length: int

    def tensor(self, datatype: Datatype, shape: tuple[int, ...]) -> "RegionTensor":
        """The input that lies there."""
        return RegionTensor(datatype, shape, self)

    def put(self, tensor: Tensor) -> None:
        """Put an output of no more bytes there, unless whoever computed it has.

        Raises:
            InvalidArgumentError: the file does not reach so far.
            UnavailableError: there is no memory for the file.
        """
        if isinstance(tensor, RegionTensor):
            there = tensor.piece
            if there.region is self.region and there.offset == self.offset:
                return
        self.write(tensor.data)

    def check(self) -> None:
        """See that the file still reaches so far.

        Raises:
            InvalidArgumentError: it does not.
        """
        size = os.lseek(self.region.descriptor, 0, os.SEEK_END)  # in a quarter of the time of `fstat`
        if size < self.offset + self.length:
            raise self._too_short(size)

    def _too_short(self, size: int) -> InvalidArgumentError:
        """The error of a file that has only so many bytes."""
        return InvalidArgumentError(
            f"shared memory region '{self.region.name}' has become shorter: its memory '{self.region.key}' has "
            f"{size} bytes, and {self.offset + self.length} are needed"
        )

    def read(self) -> memoryview:
        """A copy of its bytes.

        Raises:
            InvalidArgumentError: the file does not reach so far.
            OutOfMemoryError: there is no memory for the copy.
        """
        self.check()  # before memory is taken for it
        try:
            data = POOL.take(self.length)
        except MemoryError as error:
            raise OutOfMemoryError(str(error)) from error
        size = read_at(self.region.descriptor, data, self.offset)
        if size < self.length:
            raise self._too_short(self.offset + size)
        return data

    def write(self, data: Buffer) -> None:
        """Put bytes, no more than it has, at its beginning.

        Raises:
            InvalidArgumentError: the file does not reach so far.
            UnavailableError: there is no memory for the file.
        """
        self.check()  # what is written beyond its end would make it longer
        try:
            write_at(self.region.descriptor, memoryview(data), self.offset)
        except OSError as error:
            msg = f"cannot write to shared memory region '{self.region.name}': {error.strerror}"
            raise UnavailableError(msg) from error


class RegionTensor(Tensor):
    """A tensor whose elements are in a region. They are copied when somebody here asks for them.

    Attributes:
        piece: where they are.
    """

    __slots__ = ("piece",)

    def __init__(self, datatype: Datatype, shape: tuple[int, ...], piece: Piece) -> None:
        self.datatype = datatype
        self.shape = shape
        self._data = None
        self._array = None
        self.shared = False
        self.piece = piece

    @property
    def is_read(self) -> bool:
        """Whether they were copied."""
        return self._data is not None

    @property
    def data(self) -> Buffer:
        """The elements as bytes.

        Raises:
            HalimedeError: the region does not hold them any more, or there is no memory for a copy.
        """
        if self._data is None:
            self._data = self.piece.read()
        return self._data

    @property
    def array(self) -> Array:
        """The elements as an array.

        Raises:
            HalimedeError: the region does not hold them any more, or there is no memory for a copy.
        """
        if self._array is None:
            self._array = Tensor(self.datatype, self.shape, self.data).array
        return self._array

    @property
    def byte_size(self) -> int:
        """Bytes of the elements."""
        return self.piece.length

    def reshaped(self, shape: tuple[int, ...]) -> "RegionTensor":
        """The same elements under another shape of as many elements."""
        tensor = RegionTensor(self.datatype, shape, self.piece)
        tensor._data = self._data
        tensor.shared = self.shared
        return tensor
