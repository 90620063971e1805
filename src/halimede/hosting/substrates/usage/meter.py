"""What the instances of one machine use, measured again and again."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.usage.gpus import GpuMeter, GpuUse
from halimede.hosting.substrates.usage.utilization import Sampler, Utilization

_GPU_INTERVAL_S = 1.0
"""Between two looks at the GPUs, whose use is told as an average."""


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """What an instance used.

    Attributes:
        utilization: processors, memory and disk.
        gpus: its GPUs.
    """

    utilization: Utilization
    gpus: GpuUse


class UsageMeter:
    """Measures instances. Lives on the event loop; a thread of its own does what blocks."""

    def __init__(self, instances: Callable[[], Iterable[RunningInstance]]) -> None:
        """Nothing is measured before `start`; `instances` are those that run here."""
        self._instances = instances
        self._samplers: dict[str, Sampler] = {}
        self._gpus = GpuMeter()
        self._thread = ThreadPoolExecutor(1, "halimede-usage")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        await self._run(self._gpus.open)
        self._task = asyncio.get_running_loop().create_task(self._watch_gpus())

    async def stop(self) -> None:
        """Measure no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            await self._run(self._gpus.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _watch_gpus(self) -> None:
        while True:
            await asyncio.sleep(_GPU_INTERVAL_S)
            gpus = [gpu for instance in self._instances() for gpu in instance.gpus]
            if gpus:
                await self._run(lambda numbers=gpus: self._gpus.note(numbers))  # type: ignore[misc]

    async def take(self) -> Mapping[str, InstanceUse]:
        """What instances have used since the last call, by id; those that this sees for the first time lack."""
        instances = {instance.request.id: instance for instance in self._instances()}
        taken: dict[str, InstanceUse] = {}

        def measure() -> None:
            for name, instance in instances.items():
                sampler = self._samplers.get(name)
                if sampler is None:
                    self._samplers[name] = Sampler(instance)
                else:
                    taken[name] = InstanceUse(sampler.sample(), self._gpus.of(instance.gpus))
            for name in self._samplers.keys() - instances.keys():
                del self._samplers[name]
            self._gpus.forget()

        await self._run(measure)
        return taken
