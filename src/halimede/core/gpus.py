"""Which NVIDIA GPUs this process may use: as NVML tells it, and as CUDA_VISIBLE_DEVICES restricts it.

NVML is NVIDIA's management library, which comes with the driver; the package `nvidia-ml-py` reaches it. Where that is
not installed, the device files tell how many GPUs there are, and nothing else.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DEVICES = Path("/dev")
VISIBLE = "CUDA_VISIBLE_DEVICES"

INSTALL = 'pip install "halimede[gpu]"'


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a part of one (MIG), that this process may use.

    Attributes:
        number: its number as CUDA counts.
        uuid: what NVML and metrics call it.
        name: the product's name.
        handle: NVML's; valid until NVML is shut down.
    """

    number: int
    uuid: str
    name: str
    handle: Any


def visible_gpus() -> tuple[int, ...]:
    """Device numbers as CUDA counts them: 0 and up, as many as there are or as CUDA_VISIBLE_DEVICES lists.

    CUDA's documentation, "CUDA environment variables": the list is numbers, or UUIDs that may be cut short; what
    follows the first entry that is none of the machine's GPUs is not visible.
    """
    if not has_driver():
        return ()
    listed = os.environ.get(VISIBLE)
    if find_spec("pynvml") is None:
        present = sum(1 for _ in _device_files())
        if listed is None:
            return tuple(range(present))
        return tuple(range(min(len(listed_entries(listed)), present)))
    with nvml() as library:
        return () if library is None else tuple(gpu.number for gpu in find_gpus(library))


def missing_for_metrics() -> str:
    """What is missing for metrics of GPUs, in a few words; "" for nothing."""
    if not has_driver():
        return "there is no NVIDIA GPU here"
    if find_spec("pynvml") is None:
        return f"the package nvidia-ml-py is not installed; install it with: {INSTALL}"
    with nvml() as library:
        if library is None:
            return "NVIDIA's driver does not answer (NVML)"
        return "" if find_gpus(library) else f"{VISIBLE} lists none of the GPUs here"


def has_driver() -> bool:
    """Whether the system has device files of NVIDIA's driver; a look that costs next to nothing."""
    return any(_device_files()) or (DEVICES / "dxg").exists()


@contextmanager
def nvml() -> Iterator[Any | None]:
    """NVML, open for as long as the context lasts: the module `pynvml`, or None where it cannot be had."""
    library = open_nvml()
    try:
        yield library
    finally:
        if library is not None:
            library.nvmlShutdown()


def open_nvml() -> Any | None:
    """The module `pynvml`, to be shut down when it is done with; None where it, or the driver, cannot be had."""
    if not has_driver():
        return None
    try:
        library = import_module("pynvml")
    except ModuleNotFoundError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library


def find_gpus(library: Any) -> tuple[Gpu, ...]:
    """The GPUs that this process may use, in the order of their numbers.

    Args:
        library: `pynvml`, open.
    """
    handles = []
    for index in range(library.nvmlDeviceGetCount()):
        try:
            handles.append(library.nvmlDeviceGetHandleByIndex(index))
        except library.NVMLError:  # lost, or not this process's
            continue
    uuids = [library.nvmlDeviceGetUUID(handle) for handle in handles]
    known = dict(zip(uuids, handles, strict=True))
    listed = os.environ.get(VISIBLE)
    if listed is None:
        chosen = uuids
    else:
        chosen = []
        for entry in listed_entries(listed):
            uuid = _uuid_of(library, entry, uuids)
            if not uuid:
                break
            if uuid in chosen:
                return ()  # CUDA sees nothing at all where one is listed twice
            chosen.append(uuid)
    return tuple(
        Gpu(number, uuid, library.nvmlDeviceGetName(handle), handle)
        for number, uuid in enumerate(chosen)
        for handle in (known.get(uuid) or library.nvmlDeviceGetHandleByUUID(uuid),)
    )


def listed_entries(listed: str) -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES up to the first that names no GPU, as -1 and an empty one do."""
    entries = []
    for entry in listed.split(","):
        text = entry.strip()
        if not text or text.startswith("-"):
            break
        entries.append(text)
    return entries


def _uuid_of(library: Any, entry: str, uuids: list[str]) -> str:
    """The UUID of the GPU that an entry names; "" for none."""
    if entry.isdecimal():
        index = int(entry)
        return uuids[index] if index < len(uuids) else ""
    if entry.upper().startswith("MIG-"):
        try:
            library.nvmlDeviceGetHandleByUUID(entry)
        except library.NVMLError:
            return ""
        return entry
    matching = [uuid for uuid in uuids if uuid.lower().startswith(entry.lower())]
    return matching[0] if len(matching) == 1 else ""


def _device_files() -> Iterator[Path]:
    return (path for path in DEVICES.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))
