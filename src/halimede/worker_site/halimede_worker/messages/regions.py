"""Regions of clients' shared memory, as a worker maps them: each once, for as long as the server keeps it registered.

Inputs are views of a private mapping: a model may write to them, and the client does not see it. What a model wrote
is dropped when nothing views it any more, so that the next request sees the client's bytes again. While one array
views a part of a region, another that overlaps it is a copy; and an array that outlives its execution is detached
from the client's memory. Outputs go into a shared mapping.
"""

import mmap
import os
import resource
import sys
import threading
from typing import List, Optional

import numpy as np

FIRST_REGION = 1 << 40
"""Segments of this number and above are regions of clients."""

_PAGE = mmap.PAGESIZE
_PAGEMAP = "/proc/self/pagemap"
_ENTRY = 8
"""Bytes of a page's entry there."""

_UNUSED = 3
"""References to an array that nobody views: a container's, a variable's, and the argument of `getrefcount`."""


class RegionError(MemoryError):
    """A region of a client cannot be used as it was registered; the text says why."""


class _Lease(np.ndarray):
    """A part of the private mapping that arrays view, or did until a moment ago. Any view of it refers to it."""

    first = last = 0
    """Its pages."""

    faults = 0
    """Page faults of the process before it was made: to write to a page that nobody wrote to takes one."""

    detached = False
    mapping: mmap.mmap


class Region:
    """One region. Its methods may be called from any thread."""

    def __init__(self, size: int, descriptor: int) -> None:
        """A region of the file `descriptor`, which it closes in the end, up to the offset `size`."""
        self._end = size
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._private: Optional[mmap.mmap] = None
        self._shared: Optional[np.ndarray] = None
        self._leases: List[_Lease] = []
        self._faults = _faults()  # when the leases were looked at last

    def __del__(self) -> None:
        os.close(self._descriptor)

    def take(self, offset: int, length: int) -> np.ndarray:
        """`length` bytes, at least one, from `offset` on: an array that may be written to.

        Raises:
            RegionError: the client has shortened the region, or it cannot be mapped.
        """
        first, end = offset // _PAGE, offset + length
        last = (end - 1) // _PAGE
        with self._lock:
            if self._leases:
                self._end_leases()
                if any(lease.first <= last and first <= lease.last for lease in self._leases):
                    return self._copy(offset, length)
            mapping, size = self._private, os.lseek(self._descriptor, 0, os.SEEK_END)
            if size < end:
                raise _too_short(size, end)
            if mapping is None or len(mapping) < end:
                self._private = mapping = self._map(size, mmap.MAP_PRIVATE)
            lease = _Lease((length,), np.uint8, mapping, offset)
            lease.mapping, lease.first, lease.last, lease.faults = mapping, first, last, self._faults
            self._leases.append(lease)
            return lease.view(np.ndarray)

    def put(self, offset: int, data: np.ndarray) -> None:
        """Write bytes, at least one, from `offset` on.

        Raises:
            RegionError: the client has shortened the region, or there is no room for it in memory.
        """
        flat = data.reshape(-1).view(np.uint8)
        end = offset + flat.size
        status = os.fstat(self._descriptor)
        if status.st_size < end:
            raise _too_short(status.st_size, end)
        if status.st_blocks * 512 < status.st_size:  # a page may have no memory yet, and get none: SIGBUS
            self._write(offset, flat.data)
            return
        shared = self._shared
        if shared is None or shared.size < end:
            self._shared = shared = np.frombuffer(self._map(status.st_size, mmap.MAP_SHARED), np.uint8)
        shared[offset:end] = flat

    def detach(self) -> None:
        """Give what still views the region copies of the bytes as they are now."""
        if not self._leases:
            return
        with self._lock:
            self._end_leases()
            for lease in self._leases:
                if not lease.detached:
                    lease.detached = True
                    lease[::_PAGE] |= 0  # to write to a page makes it the process's own
                    lease[-1:] |= 0

    def _end_leases(self) -> None:
        """Drop what was written to parts that nothing views any more."""
        index, self._faults = len(self._leases), _faults()
        while index:
            index -= 1
            lease = self._leases[index]
            if sys.getrefcount(lease) == _UNUSED:
                del self._leases[index]
                if lease.detached or (lease.faults != self._faults and _is_written(lease)):
                    size = (lease.last + 1 - lease.first) * _PAGE
                    lease.mapping.madvise(mmap.MADV_DONTNEED, lease.first * _PAGE, size)

    def _map(self, size: int, flags: int) -> mmap.mmap:
        """A mapping of all that the file has of the region; it has `size` bytes now."""
        size = min(self._end, size)
        try:
            return mmap.mmap(self._descriptor, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            raise RegionError(f"cannot map {size} bytes of the client's shared memory: {error}") from error

    def _copy(self, offset: int, length: int) -> np.ndarray:
        data = np.empty(length, np.uint8)
        end = offset + read_at(self._descriptor, data.data, offset)
        if end < offset + length:
            raise _too_short(end, offset + length)
        return data

    def _write(self, offset: int, data: memoryview) -> None:
        try:
            write_at(self._descriptor, data, offset)
        except OSError as error:
            raise RegionError(f"cannot write to the client's shared memory: {error}") from error


class Piece:
    """A part of a region that a tensor lies in."""

    __slots__ = ("_length", "_offset", "_region")

    def __init__(self, region: Region, offset: int, length: int) -> None:
        self._region = region
        self._offset = offset
        self._length = length

    def take(self) -> np.ndarray:
        """Its bytes; see `Region.take`."""
        return self._region.take(self._offset, self._length)


def read_at(descriptor: int, target: memoryview, offset: int) -> int:
    """Fill the buffer from a file: how many bytes the file had for it."""
    position = 0
    while position < len(target):
        count = os.preadv(descriptor, [target[position:]], offset + position)
        if not count:
            break
        position += count
    return position


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all the bytes to a file.

    Raises:
        OSError: it does not take them.
    """
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def _too_short(size: int, end: int) -> RegionError:
    return RegionError(f"the client's shared memory has {size} bytes, and {end} are needed")


def _faults() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def _is_written(lease: _Lease) -> bool:
    """Whether a page of it is the process's own; also if that cannot be known."""
    begin: int = lease.__array_interface__["data"][0] // _PAGE
    pages = lease.last + 1 - lease.first
    try:
        pagemap = os.open(_PAGEMAP, os.O_RDONLY)
        try:
            content = os.pread(pagemap, pages * _ENTRY, begin * _ENTRY)
        finally:
            os.close(pagemap)
    except OSError:
        return True
    entries = np.frombuffer(content, np.uint64)
    there, of_a_file = entries >> np.uint64(62), entries >> np.uint64(61) & np.uint64(1)
    return len(entries) < pages or bool(np.any((there != 0) & (of_a_file == 0)))
