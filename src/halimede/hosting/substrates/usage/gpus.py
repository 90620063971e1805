"""What GPUs do, read through NVML. Blocks for milliseconds; one thread does all of it."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from halimede.core.gpus import find_gpus, open_nvml
from halimede.hosting.substrates.use import GpuUse


class GpuMeter:
    """Looks at the GPUs that the host may use, again and again, and tells averages."""

    def __init__(self) -> None:
        """A meter that is not open."""
        self._library: Any = None
        self._handles: dict[int, Any] = {}
        self._busy: dict[int, list[float]] = defaultdict(list)
        self._memory: dict[int, list[float]] = defaultdict(list)

    def open(self) -> None:
        """Begin; where there is no GPU, or NVML cannot be had, nothing is ever known."""
        self._library = open_nvml()
        if self._library is not None:
            self._handles = {gpu.number: gpu.handle for gpu in find_gpus(self._library)}

    def close(self) -> None:
        """Let go of NVML."""
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library = None

    def note(self, numbers: Iterable[int]) -> None:
        """Look at some GPUs, whose numbers are those of CUDA in the host."""
        for number in self._handles.keys() & set(numbers):
            handle = self._handles[number]
            with suppress(self._library.NVMLError):  # a part of a GPU does not tell
                self._busy[number].append(self._library.nvmlDeviceGetUtilizationRates(handle).gpu)
            with suppress(self._library.NVMLError):  # it was lost
                memory = self._library.nvmlDeviceGetMemoryInfo(handle)
                self._memory[number].append(100 * memory.used / memory.total)

    def of(self, numbers: Iterable[int]) -> GpuUse:
        """What was used of some GPUs together, on average since `forget`."""
        wanted = list(numbers)
        return GpuUse(_total(self._busy, wanted), _total(self._memory, wanted))

    def forget(self) -> None:
        """Begin a new average."""
        self._busy.clear()
        self._memory.clear()


def _total(seen: dict[int, list[float]], numbers: Iterable[int]) -> float | None:
    """The sum of the averages, None if there is nothing to sum up."""
    averages = [sum(seen[number]) / len(seen[number]) for number in numbers if seen.get(number)]
    return sum(averages) if averages else None
