"""CUDA's runtime as the TensorRT backend needs it: devices, streams, memory and copies, through `cuda-python`.

Calls hold for the device that the calling thread has chosen by `use_device`. Memory is an address, an `int`.
"""

from typing import Any

from cuda.bindings import runtime

from halimede.core.errors import HalimedeError, InternalError, OutOfMemoryError

_NO_MEMORY = runtime.cudaError_t.cudaErrorMemoryAllocation
_TO_DEVICE = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
_TO_HOST = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
_ON_DEVICE = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice


class CudaRuntime:
    """The calls, whose errors are HalimedeErrors."""

    def use_device(self, device: int) -> None:
        """Make the device the calling thread's."""
        _check(runtime.cudaSetDevice(device), f"use device {device}")

    def capability(self, device: int) -> str:
        """The device's compute capability, such as ``9.0``."""
        attributes = runtime.cudaDeviceAttr
        major, minor = (
            _check(
                runtime.cudaDeviceGetAttribute(attribute, device), f"ask device {device} for its capability"
            )
            for attribute in (
                attributes.cudaDevAttrComputeCapabilityMajor,
                attributes.cudaDevAttrComputeCapabilityMinor,
            )
        )
        return f"{major}.{minor}"

    def create_stream(self, priority: int) -> int:
        """A stream of the highest (1), the lowest (-1) or the default (0) priority."""
        lowest, highest = _check(runtime.cudaDeviceGetStreamPriorityRange(), "ask for priorities of streams")
        level = {1: highest, -1: lowest}.get(priority, 0)
        made = runtime.cudaStreamCreateWithPriority(runtime.cudaStreamNonBlocking, level)
        return int(_check(made, "create a stream"))

    def destroy_stream(self, stream: int) -> None:
        """Give a stream back."""
        _check(runtime.cudaStreamDestroy(stream), "destroy a stream")

    def allocate(self, size: int) -> int:
        """Memory of the device.

        Raises:
            OutOfMemoryError: there is not enough.
        """
        return int(_check(runtime.cudaMalloc(size), f"allocate {size} bytes on the GPU"))

    def free(self, address: int) -> None:
        """Give memory of the device back."""
        _check(runtime.cudaFree(address), "free memory of the GPU")

    def allocate_pinned(self, size: int) -> int:
        """Memory of the host that the device can reach.

        Raises:
            OutOfMemoryError: there is not enough.
        """
        made = runtime.cudaHostAlloc(size, runtime.cudaHostAllocDefault)
        return int(_check(made, f"allocate {size} bytes of pinned memory"))

    def free_pinned(self, address: int) -> None:
        """Give pinned memory back."""
        _check(runtime.cudaFreeHost(address), "free pinned memory")

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from the host to the device, when the stream comes to it."""
        _check(runtime.cudaMemcpyAsync(target, source, size, _TO_DEVICE, stream), "copy to the GPU")

    def copy_to_host(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from the device to the host, when the stream comes to it."""
        _check(runtime.cudaMemcpyAsync(target, source, size, _TO_HOST, stream), "copy from the GPU")

    def copy_on_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from the device to the device, when the stream comes to it."""
        _check(runtime.cudaMemcpyAsync(target, source, size, _ON_DEVICE, stream), "copy on the GPU")

    def wait(self, stream: int) -> None:
        """Return when the stream has done everything."""
        _check(runtime.cudaStreamSynchronize(stream), "run on the GPU")


def _check(result: tuple[Any, ...], what: str) -> Any:
    """What a call gave: nothing, one value, or several.

    Raises:
        HalimedeError: the call failed.
    """
    error, *values = result
    if error.value:
        raise _error(error, what)
    return values[0] if len(values) == 1 else values


def _error(error: Any, what: str) -> HalimedeError:
    name, text = (
        (found[1] or b"unknown").decode()
        for found in (runtime.cudaGetErrorName(error), runtime.cudaGetErrorString(error))
    )
    kind = OutOfMemoryError if error == _NO_MEMORY else InternalError
    return kind(f"cannot {what}: {text} ({name})")
