"""Compiling an exported PyTorch program into a package of machine code (AOTInductor), for a GPU or for CPUs."""

import tempfile
import warnings
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch._inductor import aoti_compile_and_package
from torch.export.passes import move_to_device_pass

from halimede.core.errors import InternalError, InvalidArgumentError, UnsupportedError


def build_package(program: Path, output: Path, device: str = "") -> str:
    """Write the package, and tell the device that it is for. Takes from seconds to minutes.

    Args:
        program: a file that `torch.export.save` has written.
        output: the package's file, which is replaced when the package is complete.
        device: ``cpu`` or ``cuda:0``; "" for the first GPU where PyTorch sees one, else the CPU.

    Raises:
        HalimedeError: the program cannot be read or compiled.
    """
    device = device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        msg = f"the installed PyTorch {torch.__version__} sees no GPU; say --device=cpu, or leave it out"
        raise UnsupportedError(msg)
    with (
        tempfile.TemporaryDirectory(dir=output.parent, prefix=".halimede-build-") as directory,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # PyTorch's, of its own insides
        exported = _read(program)
        package = Path(directory) / "model.pt2"
        try:
            exported = move_to_device_pass(exported, device)
            aoti_compile_and_package(exported, package_path=str(package))
        except Exception as error:  # what the compiler raises has no common base
            first, _, _ = str(error).strip().partition("\n")
            msg = f"PyTorch cannot compile {program} for {device}: {type(error).__name__}: {first}"
            raise InternalError(msg) from error
        package.replace(output)
    return device


def _read(program: Path) -> Any:
    if not is_zipfile(program):
        raise InvalidArgumentError(
            f"{program} is no program that torch.export.save has written (no zip archive)"
        )
    try:
        with program.open("rb") as file:  # by path, PyTorch wants names that end with .pt2
            return torch.export.load(file)
    except Exception as error:  # torch's errors have no common base
        first, _, _ = str(error).strip().partition("\n")
        msg = f"{program} is no program that torch.export.save has written: {type(error).__name__}: {first}"
        raise InvalidArgumentError(msg) from error
