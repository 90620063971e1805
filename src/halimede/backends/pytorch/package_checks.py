"""What a package of AOTInductor says of itself without being run: what it was compiled for, and what it checks.

The loader of PyTorch tells neither. The machine is in the `*_metadata.json` files of the archive; datatypes and sizes
of the inputs are in the source of the wrapper, whose generated checks name them. A package may have been written
without its source, and then says nothing of its inputs. Nothing here imports PyTorch.
"""

import json
import platform
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from halimede.core.datatypes import (
    BF16,
    BOOL,
    FP16,
    FP32,
    FP64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Datatype,
)
from halimede.core.errors import InvalidArgumentError

_FOLDER = "/data/aotinductor/model/"
_WRAPPER = ".wrapper.cpp"
_METADATA = "_metadata.json"

_INPUTS = re.compile(r"AOTInductorModelBase\((\d+),")
_FACT = re.compile(
    r"aoti_torch_dtype_(?P<dtype>\w+)\(\);"
    r'|"input_handles\[(?P<index>\d+)\]: (?P<what>unmatched dtype|unmatched dim value|dim value is too small'
    r'|dim value is too large|unmatched stride value)(?: at (?P<axis>\d+))?, "'
    r'(?:\s*<< "expected(?: it)?(?: to be)?(?: [<>]=|:) (?P<value>-?\d+))?'
)
_DATATYPES = {
    "bool": BOOL,
    "uint8": UINT8,
    "uint16": UINT16,
    "uint32": UINT32,
    "uint64": UINT64,
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "float16": FP16,
    "bfloat16": BF16,
    "float32": FP32,
    "float64": FP64,
}
_FLAGS = {
    "AVX2": "avx2",
    "AVX512": "avx512f",
    "AVX512_VNNI": "avx512_vnni",
    "AMX_TILE": "amx_tile",
    "ASIMD": "asimd",
}
"""Instruction sets by PyTorch's words, and the flags of Linux that say that a processor has them."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a package takes as the size of one dimension.

    Attributes:
        least: at least this many.
        most: at most this many, None for any number.
    """

    least: int = 0
    most: int | None = None

    @property
    def fixed(self) -> bool:
        """There is one such size."""
        return self.least == self.most


@dataclass(frozen=True, slots=True)
class InputCheck:
    """What a package takes as one input.

    Attributes:
        datatype: of its elements.
        sizes: of its dimensions.
        contiguous: it is in C order; otherwise requests cannot give it.
    """

    datatype: Datatype
    sizes: tuple[Size, ...]
    contiguous: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, -1 for a variable size."""
        return tuple(size.least if size.fixed else -1 for size in self.sizes)


@dataclass(frozen=True, slots=True)
class PackageChecks:
    """What a package says of itself.

    Attributes:
        machine: `AOTI_…` keys of what it was compiled for.
        inputs: one a tensor that it takes; None if it does not say it.
    """

    machine: dict[str, str]
    inputs: tuple[InputCheck, ...] | None

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.machine.get("AOTI_DEVICE_KEY", "cpu")

    @property
    def least_rows(self) -> int:
        """The smallest first dimension that every input may have."""
        return max((each.sizes[0].least for each in self.inputs or () if each.sizes), default=0)

    @property
    def most_rows(self) -> int | None:
        """The largest first dimension that every input may have, None for any."""
        bounds = [each.sizes[0].most for each in self.inputs or () if each.sizes]
        return min((bound for bound in bounds if bound is not None), default=None)


def read_checks(path: Path) -> PackageChecks:
    """What the package says of itself."""
    machine: dict[str, str] = {}
    source = ""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if _FOLDER not in name:
                continue
            if name.endswith(_METADATA):
                machine.update(json.loads(archive.read(name)))
            elif name.endswith(_WRAPPER):
                source = archive.read(name).decode()
    return PackageChecks(machine, _input_checks(source))


def refuse_foreign(checks: PackageChecks, flags: frozenset[str] | None) -> None:
    """Refuse a package that was compiled for another machine.

    Args:
        checks: of the package.
        flags: what the processor has, None where nobody knows.

    Raises:
        InvalidArgumentError: both sides.
    """
    for key, here in (("AOTI_PLATFORM", sys.platform), ("AOTI_MACHINE", platform.machine())):
        there = checks.machine.get(key, here)
        if there != here:
            raise InvalidArgumentError(f"the package was compiled for {there}, and this machine is {here}")
    if checks.device != "cpu" or flags is None:
        return
    wanted = checks.machine.get("AOTI_CPU_ISA", "").split()
    missing = [word for word in wanted if word in _FLAGS and _FLAGS[word] not in flags]
    if missing:
        msg = (
            f"the package was compiled for a processor with {' '.join(wanted)}, and this one has no "
            f"{' '.join(missing)}; compile it on such a machine"
        )
        raise InvalidArgumentError(msg)


def processor_flags() -> frozenset[str] | None:
    """What the processor has, as Linux says it; None elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return None if found is None else frozenset(found[1].split())


def _input_checks(source: str) -> tuple[InputCheck, ...] | None:
    """The inputs, as the source's checks describe them; None if it has none, or checks that mean nothing here."""
    count = _INPUTS.search(source)
    if count is None:
        return None
    datatypes: dict[int, Datatype] = {}
    sizes: dict[int, dict[int, Size]] = {index: {} for index in range(int(count[1]))}
    strides: dict[int, dict[int, int]] = {index: {} for index in sizes}
    dtype = ""
    for fact in _FACT.finditer(source):
        if fact["dtype"]:
            dtype = fact["dtype"]
            continue
        index, axis, value = int(fact["index"]), int(fact["axis"] or 0), int(fact["value"] or 0)
        if index not in sizes:
            return None
        old = sizes[index].get(axis, Size())
        match fact["what"]:
            case "unmatched dtype":
                if dtype not in _DATATYPES:
                    return None
                datatypes[index] = _DATATYPES[dtype]
            case "unmatched dim value":
                sizes[index][axis] = Size(value, value)
            case "dim value is too small":
                sizes[index][axis] = Size(value, old.most)
            case "dim value is too large":
                sizes[index][axis] = Size(old.least, value)
            case _:
                strides[index][axis] = value
    if datatypes.keys() != sizes.keys():
        return None
    return tuple(_check(datatypes[index], sizes[index], strides[index]) for index in sizes)


def _check(datatype: Datatype, sizes: dict[int, Size], strides: dict[int, int]) -> InputCheck:
    # a variable size without bounds has no check, but the last stride of a tensor in order is always 1
    rank = max((*sizes, *strides), default=-1) + 1
    every = tuple(sizes.get(axis, Size()) for axis in range(rank))
    step, contiguous = 1, True
    for axis in reversed(range(rank)):
        size = every[axis]
        if size != Size(1, 1) and strides.get(axis, step) != step:
            contiguous = False
        if not size.fixed:
            break  # strides beyond it are variable
        step *= size.least
    return InputCheck(datatype, every, contiguous)
