"""Tensors in the memory of a device, which steps of an ensemble hand to each other by DLPack.

Such a tensor is a `Tensor` like any other: who reads its bytes or its array gets a copy on the host. Who runs on the
device takes `elements` instead, uncopied.
"""

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Final, Protocol

from halimede.core.datatypes import Datatype
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.tensors import Array, Buffer, Tensor

Device = tuple[int, int]
"""DLPack's type of a device, and its number."""

CPU: Final = 1
CUDA: Final = 2

_NAMES = {CPU: "cpu", CUDA: "cuda"}


def device_name(device: Device) -> str:
    """The device in words, such as ``cuda:0``."""
    kind, number = device
    return f"{_NAMES.get(int(kind), f'device type {int(kind)}')}:{number}"


class Elements(Protocol):
    """What gives its memory to others by DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """A capsule of the memory, which may be read by what is put on `stream` from now on."""

    def __dlpack_device__(self) -> Device:
        """Where the memory is."""


class DeviceTensor(Tensor):
    """A tensor whose elements are computed, and in the memory of a device.

    Attributes:
        elements: they, in row-major order; perhaps under another shape. Nobody may write to them.
        device: where they are.
        origin: whose they are, for errors.
    """

    __slots__ = ("_copied", "device", "elements", "origin")

    def __init__(
        self,
        datatype: Datatype,
        shape: tuple[int, ...],
        elements: Elements,
        copy: Callable[[], Array],
        origin: str,
    ) -> None:
        """A tensor of any datatype but BYTES; `copy`, which copies it to the host, is called when that is asked for."""
        super().__init__(datatype, shape)
        self.elements = elements
        self.device = elements.__dlpack_device__()
        self.origin = origin
        self._copied = cache(copy)  # shared by all shapes of these elements

    @property
    def array(self) -> Array:
        """A copy on the host.

        Raises:
            HalimedeError: the device cannot give them.
        """
        if self._array is None:
            try:
                self._array = self._copied().reshape(self.shape)
            except HalimedeError:
                raise
            except Exception as error:  # errors of frameworks have no common base
                msg = f"{self.origin} cannot be copied from {device_name(self.device)} to the host: {error}"
                raise InternalError(msg) from error
        return self._array

    @property
    def data(self) -> Buffer:
        """The bytes of the copy on the host."""
        if self._data is None:
            self._data = Tensor.from_array(self.datatype, self.array).data
        return self._data

    @property
    def byte_size(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.datatype.itemsize

    def reshaped(self, shape: tuple[int, ...]) -> "DeviceTensor":
        """The same elements under another shape of as many elements."""
        tensor = DeviceTensor(self.datatype, shape, self.elements, self._copied, self.origin)
        tensor.shared = self.shared
        return tensor
