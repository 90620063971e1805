"""PyTorch: TorchScript, exported programs, packages of AOTInductor and modules as Python code."""

import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.frameworks.framework import MLP_FEATURES, Call, Size
from benchmarks.frameworks.inputs import numbers
from benchmarks.frameworks.mlp import WIDTHS, layers

CODE = '''"""Fully connected layers with rectifiers between them."""

from itertools import pairwise

import torch


class Network(torch.nn.Sequential):
    def __init__(self):
        layers = [
            layer
            for before, after in pairwise([{widths}])
            for layer in (torch.nn.Linear(before, after), torch.nn.ReLU())
        ]
        super().__init__(*layers[:-1])
'''
"""The module as its author would write it."""


def network(size: Size) -> torch.nn.Module:
    """The network of `mlp`."""
    parts: list[torch.nn.Module] = []
    for matrix, bias in layers(size):
        layer = torch.nn.Linear(*matrix.shape)
        layer.weight.data = torch.from_numpy(matrix).T.contiguous()
        layer.bias.data = torch.from_numpy(bias)
        parts += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1]).eval()


def exported(size: Size) -> torch.export.ExportedProgram:
    """The network as a program that takes any number of rows."""
    free = {0: torch.export.Dim.AUTO}
    return torch.export.export(network(size), (torch.rand(2, MLP_FEATURES),), dynamic_shapes=(free,))


def build(kind: str, size: Size, directory: Path) -> None:
    match kind:
        case "torchscript":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                torch.jit.save(torch.jit.script(network(size)), directory / "model.pt")
        case "export":
            torch.export.save(exported(size), directory / "model.pt2")
        case "aotinductor":
            torch._inductor.aoti_compile_and_package(  # noqa: SLF001 - its documented name
                exported(size), package_path=str(directory / "model.pt2")
            )
        case "module":
            widths = ", ".join(map(str, WIDTHS[size]))
            (directory / "model.py").write_text(CODE.format(widths=widths))
            torch.save(network(size).state_dict(), directory / "model.pt")


def load(kind: str, size: Size, directory: Path, threads: int) -> Callable[[int], Call]:
    torch.set_num_threads(threads)
    module = loaded(kind, size, directory)

    def call_for(rows: int) -> Call:
        tensor = torch.from_numpy(numbers(rows, MLP_FEATURES))

        def call() -> object:
            with torch.inference_mode():
                return module(tensor)

        return call

    return call_for


def loaded(kind: str, size: Size, directory: Path) -> Callable[[torch.Tensor], object]:
    """What PyTorch makes of the file."""
    match kind:
        case "torchscript":
            return torch.jit.load(directory / "model.pt").eval()
        case "export":
            return torch.export.load(directory / "model.pt2").module()
        case "aotinductor":
            return torch._inductor.aoti_load_package(str(directory / "model.pt2"))  # noqa: SLF001
    return network(size)
