"""Packages of AOTInductor: a program of `torch.export` compiled to native code for one kind of machine.

PyTorch's loader checks nothing that it is given. So inputs are held here against what the package says of itself, and
packages are told to check them too, which also finds sizes that contradict each other.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import torch
from torch._inductor import aoti_load_package
from torch.utils import _pytree as pytree

from halimede.backends.pytorch.names import Name, input_names, output_names
from halimede.backends.pytorch.package_checks import (
    InputCheck,
    PackageChecks,
    Size,
    processor_flags,
    read_checks,
    refuse_foreign,
)
from halimede.backends.pytorch.ports import Place, Port, Side
from halimede.backends.pytorch.program import Program, Value
from halimede.backends.pytorch.tensors import DATATYPES
from halimede.core.errors import InternalError, InvalidArgumentError

logger = logging.getLogger("halimede")

_CHECK_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
"""Packages read this variable once a process, at their first run."""

_environment = Lock()

_TORCH_TYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}


class Package(Program):
    """A package of AOTInductor.

    Args:
        path: the file.
        device: where it runs; None for the device that it was compiled for.

    Raises:
        InvalidArgumentError: it was compiled for something else, or takes or gives what requests cannot have.
        RuntimeError: PyTorch cannot load it.

    Attributes:
        checks: what the package says of itself.
    """

    # nobody says whether it does
    writes = True

    def __init__(self, path: Path, device: str | None) -> None:
        self.checks = checks = read_checks(path)
        refuse_foreign(checks, processor_flags())
        index = _device_index(checks, device)
        self.home = checks.device if index < 0 else f"{checks.device}:{index}"
        self.least_rows = checks.least_rows
        os.environ.setdefault(_CHECK_INPUTS, "1")
        self._files = TemporaryDirectory(prefix="halimede-package-")
        with _temporary_files(self._files.name):
            self._loader: Any = aoti_load_package(str(path), device_index=index).loader
        if checks.device == "cpu":  # a GPU's kernels are read when they first run
            self._files.cleanup()
        taken, given = (pytree.treespec_loads(text) for text in self._loader.get_call_spec())
        self.inputs = _inputs(input_names(taken, ()), checks.inputs)
        self._order = range(len(self.inputs.ports))
        self.outputs = _outputs([Port(name, aliases=(place,)) for name, place in output_names(given)])
        self._by_rows = False

    @property
    def batches(self) -> bool:
        """The first dimension of every input is free, and that of every output is the same; see `describe`."""
        return self._by_rows and super().batches

    def describe(self) -> None:
        """Learn datatypes and shapes of the outputs from two runs on zeros, between which every free size changes.

        Leaves them unknown if the package does not say what it takes, or refuses the sizes.
        """
        samples = _samples(self.checks)
        if samples is None:
            return
        try:
            with torch.inference_mode():
                first, second = (
                    self._loader.boxed_run([each.to(self.home) for each in one]) for one in samples
                )
        except RuntimeError as error:
            logger.info("the package's outputs stay unknown: %s", str(error).strip())
            return
        if len(first) != len(self.outputs.ports):
            raise _not_all_tensors(len(first), self.outputs)
        self.outputs = _outputs(
            [_described(*each) for each in zip(self.outputs.ports, first, second, strict=True)]
        )
        rows = [one[0].shape[:1] if one else () for one in samples]
        self._by_rows = all(
            each.shape[:1] == size for one, size in zip((first, second), rows, strict=True) for each in one
        )

    def call(self, values: Mapping[Place, Value]) -> Sequence[Any]:
        """What the package gives, flat.

        Raises:
            InvalidArgumentError: an input has a size that the package was not compiled for.
        """
        flat: list[Any] = [values[index] for index in self._order]
        for port, tensor, check in zip(self.inputs.ports, flat, self.checks.inputs or (), strict=False):
            _check_shape(port, tensor.shape, check.sizes)
        given: Sequence[Any] = self._loader.boxed_run(flat)
        if len(given) != len(self.outputs.ports):
            raise _not_all_tensors(len(given), self.outputs)
        return given

    def close(self) -> None:
        """Give back the weights. The code stays mapped for as long as the process lives."""
        self._loader = None
        self._files.cleanup()


@contextmanager
def _temporary_files(directory: str) -> Iterator[None]:
    """Have PyTorch's loader unpack its files there: it leaves them behind in a process that is killed."""
    with _environment:
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = directory
        try:
            yield
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


def _device_index(checks: PackageChecks, device: str | None) -> int:
    """The GPU's number, -1 for none in particular."""
    kind, _, index = (device or checks.device).partition(":")
    if kind != checks.device:
        here, there = ("a GPU", "CPUs") if kind == "cuda" else ("a CPU", "GPUs (cuda)")
        msg = (
            f"the package was compiled for {there}, and the instance is on {here}; compile it for the other, or set "
            f"instance_group {{ kind: {'KIND_CPU' if kind == 'cuda' else 'KIND_GPU'} }}"
        )
        raise InvalidArgumentError(msg)
    if kind != "cuda":
        return -1
    if not torch.cuda.is_available():
        raise InvalidArgumentError("the package was compiled for GPUs (cuda), and PyTorch sees none here")
    number = int(index or 0)
    wanted = checks.machine.get("AOTI_COMPUTE_CAPABILITY", "")
    found = "".join(map(str, torch.cuda.get_device_capability(number)))
    if wanted.isdecimal() and (wanted[:-1] != found[:-1] or int(wanted) > int(found)):
        msg = (
            f"the package was compiled for GPUs of compute capability {wanted}, and GPU {number} has {found}"
        )
        raise InvalidArgumentError(msg)
    return number


def _inputs(names: list[Name], checks: tuple[InputCheck, ...] | None) -> Side:
    if checks is None:
        ports = [Port(name, aliases=(place,)) for name, place in names]
        return Side("input", ", ".join(port.name for port in ports), tuple(ports), strict=True)
    if len(checks) != len(names):
        msg = (
            f"the package was compiled with {len(names)} arguments, of which {len(checks)} are tensors; requests can "
            f"give only tensors, so the others must be part of the module"
        )
        raise InvalidArgumentError(msg)
    for (name, _), check in zip(names, checks, strict=True):
        if not check.contiguous:
            msg = (
                f"input '{name}' of the package is not in C order, as requests give tensors; compile it with an "
                f"example that is contiguous"
            )
            raise InvalidArgumentError(msg)
    ports = [
        Port(name, check.datatype, check.shape, aliases=(place,))
        for (name, place), check in zip(names, checks, strict=True)
    ]
    text = ", ".join(f"{port.name}: {port.datatype} {list(port.shape or ())}" for port in ports)
    return Side("input", text, tuple(ports), strict=True)


def _outputs(ports: list[Port]) -> Side:
    named = any(port.name != f"OUTPUT__{index}" for index, port in enumerate(ports))
    text = ", ".join(
        port.name if port.shape is None else f"{port.name}: {port.datatype} {list(port.shape)}"
        for port in ports
    )
    return Side("output", text, tuple(ports), strict=named)


def _described(port: Port, first: torch.Tensor, second: torch.Tensor) -> Port:
    shape = tuple(
        size if size == other else -1 for size, other in zip(first.shape, second.shape, strict=True)
    )
    datatype = DATATYPES.get(first.dtype)
    if datatype is None:
        msg = f"output '{port.name}' of the package is {first.dtype}, which no response can have"
        raise InvalidArgumentError(msg)
    return Port(port.name, datatype, shape, aliases=port.aliases)


def _samples(checks: PackageChecks) -> tuple[list[torch.Tensor], list[torch.Tensor]] | None:
    """Two sets of inputs, between which every free size differs; None if there are no two sizes to choose from."""
    if checks.inputs is None:
        return None
    free = [
        (axis > 0, size) for check in checks.inputs for axis, size in enumerate(check.sizes) if not size.fixed
    ]
    least = {
        inner: max([2, *(size.least for each, size in free if each == inner)]) for inner in (False, True)
    }
    # rows and other sizes grow differently, so that neither is taken for the other
    steps = ({False: 0, True: 0}, {False: 1, True: 2})
    if any(size.most is not None and size.most < least[inner] + steps[1][inner] for inner, size in free):
        return None
    first, second = (
        [
            torch.zeros(
                [
                    size.least if size.fixed else least[axis > 0] + step[axis > 0]
                    for axis, size in enumerate(check.sizes)
                ],
                dtype=_TORCH_TYPES[check.datatype],
            )
            for check in checks.inputs
        ]
        for step in steps
    )
    return first, second


def _check_shape(port: Port, shape: Sequence[int], sizes: Sequence[Size]) -> None:
    if len(shape) == len(sizes) and all(
        size.least <= dim and (size.most is None or dim <= size.most)
        for dim, size in zip(shape, sizes, strict=True)
    ):
        return
    # a scalar of the configuration has one element
    if not sizes and list(shape) == [1]:
        return
    takes = ", ".join(
        str(size.least)
        if size.fixed
        else f"{size.least} or more"
        if size.most is None
        else f"{size.least} to {size.most}"
        for size in sizes
    )
    msg = f"input '{port.name}' has shape {list(shape)}, but the package was compiled for [{takes}]"
    raise InvalidArgumentError(msg)


def _not_all_tensors(count: int, outputs: Side) -> InternalError:
    return InternalError(
        f"the package gives {count} tensors for {len(outputs.ports)} values ({outputs.text}); every value must be a "
        f"tensor"
    )
