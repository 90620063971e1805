"""Where a model that calls another would like the outputs to be."""

from typing import SupportsIndex, Tuple

from ..arguments import INT64, Signature
from ..enumeration import NamedInt


class MemoryType(NamedInt):
    """A kind of memory. Numbered as the original does here, which is not as its C interface does."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


_NEW = Signature.constructor(
    "PreferredMemory(preferred_memory_type: MemoryType, preferred_device_id: int = 0)"
)


class PreferredMemory:
    """The memory in which the outputs of a request to another model should be.

    Args:
        preferred_memory_type: `TRITONSERVER_MEMORY_GPU` or `TRITONSERVER_MEMORY_CPU`.
        preferred_device_id: which GPU.

    Raises:
        TypeError: an argument is of another type.
    """

    __module__ = "c_python_backend_utils"

    __slots__ = ("_device", "_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: SupportsIndex = 0) -> None:
        self._type = _NEW.instance("preferred_memory_type", preferred_memory_type, MemoryType)
        self._device = _NEW.whole("preferred_device_id", preferred_device_id, INT64)


def encode_preferred_memory(preferred: PreferredMemory) -> Tuple[int, int]:
    """The preference for a message: the number of the type and the device's."""
    return int(preferred._type), preferred._device
