"""The regions of shared memory that clients have registered.

Names are unique among all of them. A region that is unregistered while requests use it stays, with its name, until the
last of them is over; no request may use it any more.
"""

import os
import stat
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from halimede.core.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from halimede.core.regions import Piece, Region, SystemRegion
from halimede.frontends.shared_memory.cuda import CudaMemory, CudaPiece, CudaRegion, open_driver
from halimede_worker import descriptors

R = TypeVar("R", bound=Region)

MAX_REGIONS: Final = 4096
"""So many regions may be registered at a time: each of system memory has a file descriptor."""

_DIRECTORY: Final = "/dev/shm"  # noqa: S108 - where shm_open looks
_RESERVED: Final = "triton_python_backend_shm_region_"
_DISABLED: Final = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)


class Place(NamedTuple):
    """Where a request says that a tensor is, or is to be put.

    Attributes:
        region: the region's name.
        offset: where the tensor begins in it, in bytes.
        byte_size: how many bytes it has, or an output may have.
    """

    region: str
    offset: int
    byte_size: int


class _Table:
    """All regions by name, and which of them are unregistered.

    Attributes:
        state: another object after each change.
    """

    def __init__(self) -> None:
        self.regions: dict[str, SystemRegion | CudaRegion] = {}
        self.leaving: set[str] = set()
        self.state = object()

    def check_free(self, name: str) -> None:
        """Raise if a region has the name, or there are as many as there may be."""
        if name in self.regions:
            raise AlreadyExistsError(f"shared memory region '{name}' already in manager")
        if len(self.regions) >= MAX_REGIONS:
            msg = (
                f"failed to register shared memory region '{name}': the server has {MAX_REGIONS} of them, as many as "
                "it may; unregister those that are not used any more"
            )
            raise UnavailableError(msg)

    def add(self, region: SystemRegion | CudaRegion) -> None:
        """Register a region."""
        self.regions[region.name] = region
        self.state = object()
        region.on_close.add(lambda: self._gone(region.name))

    def leave(self, region: SystemRegion | CudaRegion) -> None:
        """Unregister a region."""
        self.leaving.add(region.name)
        self.state = object()
        region.release()

    def _gone(self, name: str) -> None:
        del self.regions[name]
        self.leaving.discard(name)


class _Regions(Generic[R]):
    """Those of one kind of memory."""

    kind: type[R]
    word: str
    other: str

    def __init__(self, table: _Table) -> None:
        self._table = table

    def status(self, name: str = "") -> Iterable[R]:
        """The region of that name; all without a name.

        Raises:
            NotFoundError: there is none.
        """
        regions = self._table.regions
        if not name:
            return [each for each in regions.values() if isinstance(each, self.kind)]
        region = regions.get(name)
        if region is None:
            raise NotFoundError(f"Unable to find {self.word.lower()} shared memory region: '{name}'")
        if not isinstance(region, self.kind):
            raise NotFoundError(f"The region named '{name}' is registered as {self.other}")
        return [region]

    def unregister(self, name: str = "") -> None:
        """Unregister a region, if there is one of that name; all without a name."""
        table = self._table
        for region in list(table.regions.values()):
            if (
                isinstance(region, self.kind)
                and name in ("", region.name)
                and region.name not in table.leaving
            ):
                table.leave(region)


class SystemRegions(_Regions[SystemRegion]):
    """Regions of system memory."""

    kind = SystemRegion
    word = "system"
    other = "CUDA shared memory, not system shared memory"

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a region.

        Args:
            name: what requests will call it.
            key: the name of the memory, as `shm_open` takes it.
            offset: where the region begins in it.
            byte_size: how long it is.

        Raises:
            AlreadyExistsError: the name is taken.
            InternalError: there is no such memory, or the server may not use it.
            InvalidArgumentError: it is too short, or its key is one of Triton's own.
            UnavailableError: the largest number of regions is registered, or too few file descriptors are left.
        """
        self._table.check_free(name)
        if key.lstrip("/").startswith(_RESERVED):
            msg = (
                f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved "
                f"prefix '{_RESERVED}'"
            )
            raise InvalidArgumentError(msg)
        descriptor = _open(key)
        size = os.fstat(descriptor).st_size
        if not 0 < byte_size <= size - offset:
            os.close(descriptor)
            msg = (
                f"failed to register shared memory region '{name}': invalid args: '{key}' has {size} bytes, and "
                f"{byte_size} at offset {offset} are not a part of them"
            )
            raise InvalidArgumentError(msg)
        self._table.add(SystemRegion(name, key, offset, byte_size, descriptor))


class CudaRegions(_Regions[CudaRegion]):
    """Regions of GPUs' memory."""

    kind = CudaRegion
    word = "cuda"
    other = "system shared memory, not CUDA shared memory"

    def __init__(self, table: _Table, memory: CudaMemory | None) -> None:
        super().__init__(table)
        self._memory = memory

    def register(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Register a region.

        Args:
            name: what requests will call it.
            handle: of the memory, as `cudaIpcGetMemHandle` gives it.
            device: the GPU.
            byte_size: how long the region is.

        Raises:
            AlreadyExistsError: the name is taken.
            UnavailableError: there are as many regions as there may be, or too few file descriptors are left.
            InvalidArgumentError: there is no GPU, the handle is none of its memory, or that is too short.
        """
        self._table.check_free(name)
        if self._memory is None:
            self._memory = open_driver()
        if self._memory is None:
            msg = f"failed to register CUDA shared memory region: '{name}', GPUs not supported"
            raise InvalidArgumentError(msg)
        try:
            address, size = self._memory.open(handle, device)
        except InternalError as error:
            msg = f"failed to register shared memory region '{name}': invalid args: {error.message}"
            raise InvalidArgumentError(msg) from error
        if not 0 < byte_size <= size:
            self._memory.close(address, device)
            msg = (
                f"failed to register shared memory region '{name}': invalid args: the memory has {size} bytes, not "
                f"{byte_size}"
            )
            raise InvalidArgumentError(msg)
        self._table.add(CudaRegion(name, device, byte_size, address, self._memory))


class Regions:
    """Every registered region. Lives on the event loop.

    Attributes:
        system: those of system memory.
        cuda: those of GPUs' memory.
    """

    def __init__(self, *, allowed: bool = False, cuda: CudaMemory | None = None) -> None:
        """No regions; none may be registered unless that is `allowed`.

        `cuda` is GPUs' memory; None for CUDA's driver, if there is one.
        """
        self._allowed = allowed
        self._table = _Table()
        self.system = SystemRegions(self._table)
        self.cuda = CudaRegions(self._table, cuda)

    def check_allowed(self) -> None:
        """Raise if clients may not register regions, nor unregister any.

        Raises:
            UnsupportedError: they may not.
        """
        if not self._allowed:
            raise UnsupportedError(_DISABLED)

    @property
    def state(self) -> object:
        """What is registered: another object after each change, until which equal places are equal pieces."""
        return self._table.state

    def piece(self, place: Place) -> Piece | CudaPiece:
        """The part of a region that a request names.

        Raises:
            NotFoundError: there is no such region.
            InvalidArgumentError: the region does not reach so far.
        """
        region = self._table.regions.get(place.region)
        if region is None or place.region in self._table.leaving:
            raise NotFoundError(f"Unable to find shared memory region: '{place.region}'")
        return region.piece(place.offset, place.byte_size)


def _open(key: str) -> int:
    """The shared memory of that key, as a descriptor.

    Raises:
        InternalError: it cannot be opened.
        UnavailableError: there are too few file descriptors left.
    """
    name = key.lstrip("/")
    refusal = InternalError(f"Unable to open shared memory region: '{key}'")
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise refusal
    try:
        descriptor = os.open(f"{_DIRECTORY}/{name}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, OSError) and descriptors.are_out(error):
            raise UnavailableError(_scarce(key)) from error
        raise refusal from error
    if descriptor >= descriptors.usable():
        os.close(descriptor)
        raise UnavailableError(_scarce(key))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refusal
    return descriptor


def _scarce(key: str) -> str:
    return f"Unable to open shared memory region: '{key}': {descriptors.shortage()}; some are kept for other requests"
