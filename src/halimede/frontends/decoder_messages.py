"""Messages between the server and a process that decodes: how many parts there are, the size of each, the parts."""

import pickle
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import IO, Any

from halimede.core.tensors import Buffer, Tensor


def send(pipe: IO[bytes], parts: Sequence[Buffer]) -> None:
    """Write a message."""
    pipe.write(struct.pack(f"<{1 + len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def receive(pipe: IO[bytes]) -> list[bytes]:
    """The parts of a message.

    Raises:
        EOFError: the other process has ended.
    """
    return [_exactly(pipe, size) for size in receive_sizes(pipe)]


def receive_sizes(pipe: IO[bytes]) -> tuple[int, ...]:
    """The sizes of the parts of a message, which come next.

    Raises:
        EOFError: the other process has ended.
    """
    (count,) = struct.unpack("<Q", _exactly(pipe, 8))
    return struct.unpack(f"<{count}Q", _exactly(pipe, 8 * count))


def fill(pipe: IO[bytes], part: memoryview) -> None:
    """Read a part.

    Raises:
        EOFError: the other process has ended.
    """
    if pipe.readinto(part) < len(part):  # type: ignore[attr-defined]  # it is a BufferedReader
        raise EOFError


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


class _Pickler(pickle.Pickler):
    """Leaves the elements of tensors, and the bytes of views, out."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Tensor):
            return Tensor, (value.datatype, value.shape, pickle.PickleBuffer(value.data))
        if isinstance(value, memoryview):
            return memoryview, (pickle.PickleBuffer(value),)
        return NotImplemented


def pickled(value: object) -> list[Buffer]:
    """A value as parts of a message, of which all but the first are elements of tensors, or bytes of views."""
    buffers: list[pickle.PickleBuffer] = []
    written = BytesIO()
    _Pickler(written, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    return [written.getvalue(), *(each.raw() for each in buffers)]
