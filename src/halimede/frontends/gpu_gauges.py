"""Gauges of the machine's NVIDIA GPUs, read through NVML in a thread of their own."""

import atexit
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from halimede.core.gpus import Gpu, find_gpus, open_nvml

logger = logging.getLogger("halimede")

_LAST_ANSWER_S = 2.0
"""How long the end waits for a call to the driver."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What one GPU said last; None for what it does not tell.

    Attributes:
        uuid: its name in metrics.
        utilization: share of the time in which some kernel ran, 0 to 1.
        memory_total: bytes.
        memory_used: bytes, whoever uses them.
        power_usage: watts.
        power_limit: watts.
        energy: joules since the server was started.
    """

    uuid: str
    utilization: float | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    power_usage: float | None = None
    power_limit: float | None = None
    energy: float | None = None


class GpuGauges:
    """The GPUs that this process may use, measured every so often.

    A thread measures, since NVML may take milliseconds to answer, or wait for a GPU that wakes up.

    Attributes:
        samples: the last ones, one a GPU.
    """

    samples: Sequence[GpuSample]

    def __init__(self, library: Any, gpus: Sequence[Gpu], interval_ms: int) -> None:
        """Measure once, then start the thread.

        Args:
            library: `pynvml`, open; it is shut down by `close`.
            gpus: what to measure.
            interval_ms: time between two measurements.
        """
        self._library = library
        self._gpus = gpus
        self._began = [self._energy(gpu) for gpu in gpus]
        self._stopped = Event()
        self._interval = interval_ms / 1000
        self.samples = self.measure()
        self._thread = Thread(target=self._run, name="halimede-gpu-metrics", daemon=True)
        self._thread.start()

    def measure(self) -> list[GpuSample]:
        """What the GPUs say now."""
        return [self._sample(gpu, began) for gpu, began in zip(self._gpus, self._began, strict=True)]

    def close(self) -> None:
        """End the thread and let go of NVML, unless the driver does not answer."""
        self._stopped.set()
        self._thread.join(_LAST_ANSWER_S)
        if not self._thread.is_alive():
            self._library.nvmlShutdown()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self.samples = self.measure()
            except Exception:  # the next time may be better
                logger.exception("GPUs could not be measured")

    def _sample(self, gpu: Gpu, began: float | None) -> GpuSample:
        library, handle = self._library, gpu.handle
        rates = self._ask(library.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(library.nvmlDeviceGetMemoryInfo, handle)
        usage = self._ask(library.nvmlDeviceGetPowerUsage, handle)
        limit = self._ask(library.nvmlDeviceGetPowerManagementLimit, handle)
        energy = self._energy(gpu)
        return GpuSample(
            gpu.uuid,
            utilization=None if rates is None else rates.gpu / 100,
            memory_total=None if memory is None else memory.total,
            memory_used=None if memory is None else memory.used,
            power_usage=None if usage is None else usage / 1000,
            power_limit=None if limit is None else limit / 1000,
            energy=None if energy is None or began is None else max(0.0, energy - began),
        )

    def _energy(self, gpu: Gpu) -> float | None:
        """Joules since the driver was loaded."""
        millijoules = self._ask(self._library.nvmlDeviceGetTotalEnergyConsumption, gpu.handle)
        return None if millijoules is None else millijoules / 1000

    def _ask(self, function: Callable[[Any], Any], handle: Any) -> Any | None:
        """What NVML answers; None where the GPU does not tell, as a part of one (MIG) or one that was lost."""
        try:
            return function(handle)
        except self._library.NVMLError:
            return None


def open_gpu_gauges(interval_ms: int) -> GpuGauges | None:
    """Gauges of the GPUs that this process may use; None where there are none, or NVML cannot be had."""
    library = open_nvml()
    if library is None:
        return None
    gpus = find_gpus(library)
    if not gpus:
        library.nvmlShutdown()
        return None
    logger.info("metrics of %d GPUs: %s", len(gpus), ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in gpus))
    gauges = GpuGauges(library, gpus, interval_ms)
    atexit.register(gauges.close)  # no thread is in the driver when the interpreter is taken down
    return gauges
