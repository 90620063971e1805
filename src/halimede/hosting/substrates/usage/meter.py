"""What the instances of one machine use, measured again and again."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from halimede.core import tasks
from halimede.hosting.substrates.base import RunningInstance
from halimede.hosting.substrates.usage.gpus import GpuMeter
from halimede.hosting.substrates.usage.utilization import Sampler
from halimede.hosting.substrates.use import InstanceUse

logger = logging.getLogger("halimede")

_GPU_INTERVAL_S = 1.0
"""Between two looks at the GPUs, whose use is told as an average."""


class UsageMeter:
    """Measures instances. Lives on the event loop; a thread of its own does what blocks."""

    def __init__(self, instances: Callable[[], Iterable[RunningInstance]]) -> None:
        """Nothing is measured before `start` or `open`; `instances` are those that run here."""
        self._instances = instances
        self._samplers: dict[str, Sampler] = {}
        self._gpus = GpuMeter()
        self._thread = ThreadPoolExecutor(1, "halimede-usage")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, and look at the GPUs each second."""
        await self.open()
        self._task = tasks.forever("measuring GPUs", self._watch_gpus)

    async def open(self) -> None:
        """Begin; somebody else calls `note_gpus`."""
        await self._run(self._gpus.open)

    async def stop(self) -> None:
        """Measure no more."""
        await tasks.cancel(self._task)
        await self._run(self._gpus.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _watch_gpus(self) -> None:
        while True:
            await asyncio.sleep(_GPU_INTERVAL_S)
            await self.note_gpus()

    async def note_gpus(self) -> None:
        """Look at the GPUs that instances have, which is done each second."""
        gpus = [gpu for instance in self._instances() for gpu in instance.gpus]
        if gpus:
            await self._run(lambda: self._gpus.note(gpus))

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
