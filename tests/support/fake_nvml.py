"""A stand-in for the module `pynvml` on a machine with GPUs: its function names, types, units and errors."""
# ruff: noqa: N802, N818 - the names are NVML's

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from halimede.core import gpus


class NVMLError(Exception):
    """As `pynvml.NVMLError`."""


class NVMLErrorNotSupported(NVMLError):
    """As `pynvml.NVMLError_NotSupported`."""


@dataclass
class FakeGpu:
    """One GPU, in NVML's units: percent, bytes, milliwatts and millijoules."""

    uuid: str
    name: str = "NVIDIA H200"
    utilization: int = 25
    memory_total: int = 150_754_820_096
    memory_used: int = 2_147_483_648
    power_usage: int = 120_500
    power_limit: int = 700_000
    energy: int = 5_000_000
    silent: set[str] = field(default_factory=set)

    def answer(self, what: str) -> Any:
        if what in self.silent:
            raise NVMLErrorNotSupported("Not Supported")
        return getattr(self, what)


class FakeNvml(ModuleType):
    """The module."""

    NVMLError = NVMLError

    def __init__(self, fakes: Sequence[FakeGpu], *, works: bool = True) -> None:
        super().__init__("pynvml")
        self.fakes = fakes
        self.works = works
        self.opened = 0
        self.closed = 0

    def nvmlInit(self) -> None:
        if not self.works:
            raise NVMLError("Driver Not Loaded")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        assert self.opened > self.closed, "NVML is not open"
        return len(self.fakes)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        if "handle" in self.fakes[index].silent:
            raise NVMLError("GPU is lost")
        return self.fakes[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        if not uuid.startswith("MIG-1"):
            raise NVMLError("Not Found")
        return FakeGpu(uuid, silent={"utilization", "energy", "power_usage", "power_limit"})

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        return handle.name

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> Any:
        return SimpleNamespace(gpu=handle.answer("utilization"), memory=3)

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu) -> Any:
        return SimpleNamespace(total=handle.answer("memory_total"), free=0, used=handle.answer("memory_used"))

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:
        return int(handle.answer("power_usage"))

    def nvmlDeviceGetPowerManagementLimit(self, handle: FakeGpu) -> int:
        return int(handle.answer("power_limit"))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: FakeGpu) -> int:
        return int(handle.answer("energy"))


def machine_with(
    patch: pytest.MonkeyPatch, directory: Path, fakes: Sequence[FakeGpu], *, works: bool = True
) -> FakeNvml:
    """Make this a machine with these GPUs, until `patch` is undone; `directory` stands for /dev."""
    for number in range(len(fakes)):
        (directory / f"nvidia{number}").touch()
    (directory / "nvidiactl").touch()
    library = FakeNvml(fakes, works=works)
    patch.setattr(gpus, "DEVICES", directory)
    patch.setattr(gpus, "find_spec", lambda name: object())
    patch.setattr(gpus, "import_module", lambda name: library)
    patch.delenv(gpus.VISIBLE, raising=False)
    return library
