"""The frameworks that are measured, and how their models are served; nothing here imports them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks.inputs import PHOTOGRAPH, numbers, picture

MLP_FEATURES = 64
FOREST_FEATURES = 16


class Size(Enum):
    """Of a model."""

    SMALL = "small"
    """A call on one row takes a fraction of a millisecond."""
    LARGE = "large"
    """A call on many rows takes many milliseconds, so that computing is all that counts."""


Call = Callable[[], object]
"""Runs the model once, on inputs that are there already."""


class Maker(Protocol):
    """What the module of a framework has. Only the processes `build` and `bare` import it."""

    def build(self, kind: str, size: Size, directory: Path) -> None:
        """Write the model's files into the directory of its version."""

    def load(self, kind: str, size: Size, directory: Path, threads: int) -> Callable[[int], Call]:
        """The loaded model: for a number of rows, the call that runs so many."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output, as the configuration has it."""

    name: str
    datatype: str
    dims: tuple[int, ...]

    @property
    def config(self) -> str:
        """Its part of the configuration, without which side it is on."""
        return f'{{ name: "{self.name}" data_type: TYPE_{self.datatype} dims: {list(self.dims)} }}'


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework, or one kind of its models.

    Attributes:
        name: in the names of the rows.
        module: the `Maker`, of this package.
        kind: which of its models.
        needs: modules that must be installed.
        backend: what the configuration says runs the model.
        input: the only one.
        output: the only one.
        batches: rows of a request; the one that the bare call is fastest with is measured.
        programs: programs that must be there.
        has_small: its model comes in both sizes; else only throughput is measured.
    """

    name: str
    module: str
    kind: str
    needs: tuple[str, ...]
    backend: str
    input: Tensor
    output: Tensor
    batches: tuple[int, ...]
    programs: tuple[str, ...] = ()
    has_small: bool = True

    @property
    def missing(self) -> str:
        """What it needs and is not there; "" if everything is."""
        modules = [name for name in self.needs if not installed(name)]
        return ", ".join([*modules, *(name for name in self.programs if which(name) is None)])

    def rows(self, size: Size, count: int) -> NDArray[Any]:
        """So many rows of input, as the model takes them."""
        if self.input.datatype == "UINT8":
            return np.tile(np.frombuffer(picture(self.kind, SIDES[size]), np.uint8), (count, 1))
        return numbers(count, *self.input.dims)

    def config(self, batch: int) -> str:
        """The configuration, with one instance and batches of at most so many rows."""
        return (
            f"{self.backend}\nmax_batch_size: {batch}\ninput {self.input.config}\noutput {self.output.config}\n"
            "instance_group { count: 1 kind: KIND_CPU }\ndynamic_batching { }\n"
        )


def installed(module: str) -> bool:
    """Whether the module, perhaps of a package, could be imported."""
    package = module.rpartition(".")[0]
    return (not package or installed(package)) and find_spec(module) is not None


SIDES = {Size.SMALL: 16, Size.LARGE: 256}
"""Of the square pictures that are decoded."""


def mlp(
    name: str, module: str, kind: str, needs: tuple[str, ...], backend: str, programs: tuple[str, ...] = ()
) -> Framework:
    """A framework that computes the network of `benchmarks.frameworks.mlp`."""
    return Framework(
        name,
        module,
        kind,
        needs,
        backend,
        Tensor("INPUT__0", "FP32", (MLP_FEATURES,)),
        Tensor("OUTPUT__0", "FP32", (10,)),
        (32, 64, 128, 256, 512),
        programs,
    )


def pictures(name: str, kind: str, needs: tuple[str, ...]) -> Framework:
    """A pipeline that decodes and resizes pictures of a kind."""
    return Framework(
        name,
        "dali_pictures",
        kind,
        needs,
        'backend: "dali"',
        Tensor("DALI_INPUT_0", "UINT8", (-1,)),
        Tensor("DALI_OUTPUT_0", "UINT8", (-1, -1, 3)),
        (1, 4, 8),
        has_small=kind != PHOTOGRAPH,
    )


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        mlp("onnxruntime", "onnxruntime_mlp", "", ("onnxruntime",), 'backend: "onnxruntime"'),
        mlp("pytorch-torchscript", "pytorch_mlp", "torchscript", ("torch",), 'backend: "pytorch"'),
        mlp("pytorch-export", "pytorch_mlp", "export", ("torch",), 'platform: "torch_aoti"'),
        mlp(
            "pytorch-aotinductor",
            "pytorch_mlp",
            "aotinductor",
            ("torch",),
            'platform: "torch_aoti"',
            ("g++",),
        ),
        mlp("pytorch-module", "pytorch_mlp", "module", ("torch",), 'backend: "pytorch" runtime: "model.py"'),
        mlp(
            "tensorflow-savedmodel",
            "tensorflow_mlp",
            "savedmodel",
            ("tensorflow",),
            'platform: "tensorflow_savedmodel"',
        ),
        mlp(
            "tensorflow-graphdef",
            "tensorflow_mlp",
            "graphdef",
            ("tensorflow",),
            'platform: "tensorflow_graphdef"',
        ),
        mlp("openvino", "openvino_mlp", "", ("openvino",), 'backend: "openvino"'),
        Framework(
            "fil",
            "forest",
            "",
            ("treelite", "xgboost"),
            'backend: "fil"',
            Tensor("input__0", "FP32", (FOREST_FEATURES,)),
            Tensor("output__0", "FP32", (1,)),
            (64, 1024),
        ),
        pictures("dali", "", ("nvidia.dali",)),
        pictures("dali-photograph", PHOTOGRAPH, ("nvidia.dali", "sklearn")),
    )
}
