"""A stand-in for CUDA's driver as `ctypes` sees it, with memory of the host in place of a GPU's."""

import ctypes
from typing import Any

import numpy as np

from halimede.core.tensors import Array

INVALID_VALUE = 1
INVALID_DEVICE = 101
INVALID_HANDLE = 400

_TEXTS = {
    INVALID_VALUE: b"invalid argument",
    INVALID_DEVICE: b"invalid device ordinal",
    INVALID_HANDLE: b"invalid resource handle",
}


class FakeCuda:
    """The functions that the server calls, by the driver's names, with its arguments.

    Attributes:
        gpus: how many there are.
        opened: how often the memory at each address is open.
        calls: names of the functions that were called, in order.
        stream: of the last copy.
    """

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.opened: dict[int, int] = {}
        self.calls: list[str] = []
        self.stream: int | None = None
        self._shared: dict[bytes, tuple[Array, int]] = {}

    def share(self, array: Array, offset: int = 0) -> bytes:
        """A handle of the memory from that byte on, as another process would have got it."""
        handle = f"handle {len(self._shared)}".encode().ljust(64, b"\0")
        self._shared[handle] = array.view(np.uint8).reshape(-1), offset
        return handle

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name != "cuGetErrorString":
            self.calls.append(name)
        return object.__getattribute__(self, name)

    # What `ctypes.byref` refers to is its `_obj`, of which the standard library has no public name.

    def cuGetErrorString(self, status: int, text: Any) -> int:  # noqa: N802
        text._obj.value = _TEXTS[status]  # noqa: SLF001 - see above
        return 0

    def cuDeviceGet(self, number: Any, device: Any) -> int:  # noqa: N802
        if not 0 <= device.value < self.gpus:
            return INVALID_DEVICE
        number._obj.value = device.value  # noqa: SLF001 - see above
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, number: Any) -> int:  # noqa: N802
        context._obj.value = 1000 + number.value  # noqa: SLF001 - see above
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        return 0 if context.value >= 1000 else INVALID_VALUE

    def cuStreamCreate(self, stream: Any, flags: Any) -> int:  # noqa: N802
        stream._obj.value = 2000  # noqa: SLF001 - see above
        return 0 if flags.value == 1 else INVALID_VALUE

    def cuStreamSynchronize(self, stream: Any) -> int:  # noqa: N802
        return 0 if stream.value == 2000 else INVALID_HANDLE

    def cuIpcOpenMemHandle_v2(self, address: Any, handle: Any, flags: int) -> int:  # noqa: N802
        shared = self._shared.get(ctypes.string_at(ctypes.byref(handle), 64))
        if shared is None or flags != 1:
            return INVALID_VALUE
        array, offset = shared
        address._obj.value = array.ctypes.data + offset  # noqa: SLF001 - see above
        self.opened[address._obj.value] = self.opened.get(address._obj.value, 0) + 1  # noqa: SLF001 - see above
        return 0

    def cuMemGetAddressRange_v2(self, base: Any, size: Any, address: Any) -> int:  # noqa: N802
        for array, _ in self._shared.values():
            if 0 <= address.value - array.ctypes.data < array.nbytes:
                base._obj.value, size._obj.value = array.ctypes.data, array.nbytes  # noqa: SLF001 - see above
                return 0
        return INVALID_VALUE

    def cuIpcCloseMemHandle(self, address: Any) -> int:  # noqa: N802
        if not self.opened.get(address.value):
            return INVALID_VALUE
        self.opened[address.value] -= 1
        return 0

    def cuMemcpyDtoHAsync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> int:  # noqa: N802
        return self._copied(target, source, size, stream)

    def cuMemcpyHtoDAsync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> int:  # noqa: N802
        return self._copied(target, source, size, stream)

    def cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> int:  # noqa: N802
        return self._copied(target, source, size, stream)

    def _copied(self, target: Any, source: Any, size: Any, stream: Any) -> int:
        ctypes.memmove(target.value, source.value, size.value)
        self.stream = stream.value
        return 0
