"""Memory of a GPU that leaves an instance with an output, and comes back when nobody has it any more."""

from typing import Protocol


class Memory(Protocol):
    """Of CUDA's calls those for memory: see `CudaRuntime`."""

    def allocate(self, size: int) -> int:
        """Memory of the device."""

    def free(self, address: int) -> None:
        """Give memory of the device back."""


class Block:
    """Memory that comes back to where it was taken when the last reference to the block is gone.

    Attributes:
        address: where it is.
    """

    __slots__ = ("_home", "_size", "address")

    def __init__(self, home: "Blocks", address: int, size: int) -> None:
        self.address = address
        self._home = home
        self._size = size

    def __del__(self) -> None:
        self._home.give(self.address, self._size)


class Blocks:
    """The blocks of one instance; those that are free are used again, as CUDA takes its time to allocate.

    Blocks come back in any thread, and in the middle of anything, so there is no lock: what is done to lists here is
    done at once.
    """

    def __init__(self, cuda: Memory) -> None:
        self._cuda = cuda
        self._free: dict[int, list[int]] = {}  # by size, a power of two
        self._closed = False

    def take(self, size: int) -> Block:
        """A block of at least `size` bytes.

        Raises:
            OutOfMemoryError: there is not enough memory.
        """
        size = 1 << max(size - 1, 255).bit_length()
        try:
            address = self._free[size].pop()
        except (KeyError, IndexError):
            address = self._cuda.allocate(size)
        return Block(self, address, size)

    def give(self, address: int, size: int) -> None:
        """Take a block back."""
        self._free.setdefault(size, []).append(address)
        if self._closed:
            self._empty()

    def close(self) -> None:
        """Give the memory back, that of blocks which are still in use as soon as it comes back."""
        self._closed = True
        self._empty()

    def _empty(self) -> None:
        for addresses in list(self._free.values()):
            while addresses:
                try:
                    address = addresses.pop()
                except IndexError:  # another thread was faster
                    break
                self._cuda.free(address)
