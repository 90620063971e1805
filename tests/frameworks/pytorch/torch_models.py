"""PyTorch models of a few lines, saved as TorchScript or as programs of `torch.export`.

PyTorch calls TorchScript deprecated; files of it are what this backend is for, so its warnings are left out.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


class AddSub(torch.nn.Module):
    """Sum and difference."""

    def forward(self, INPUT0: torch.Tensor, INPUT1: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: N803
        return INPUT0 + INPUT1, INPUT0 - INPUT1


class Linear(torch.nn.Module):
    """One layer of `size` × `size` weights."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Identity(torch.nn.Module):
    """Its input, uncopied."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Gather(torch.nn.Module):
    """The element of each row of x that an index names."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 1, index)


class Doubler(torch.nn.Module):
    """Twice its input, written into the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class Counter(torch.nn.Module):
    """How many calls there were: state that a call changes, and that its output is."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.count


class Keyed(torch.nn.Module):
    """Dictionary in, dictionary out."""

    def forward(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sum": tensors["a"] + tensors["b"], "first": tensors["a"]}


class Parts(torch.nn.Module):
    """A list of tensors, whose length only a run tells."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x, x + 1]


class Shout(torch.nn.Module):
    """Strings in, strings out."""

    def forward(self, texts: list[str]) -> list[str]:
        return [text + "!" for text in texts]


class Optional(torch.nn.Module):
    """An input that a call may leave out, and an argument that no request can give."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None, scale: float = 2.0) -> torch.Tensor:
        if bias is not None:
            x = x + bias
        return x * scale


class Training(torch.nn.Module):
    """Whether it is in training mode; saved so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (1 if self.training else 0)


class Sum(torch.nn.Module):
    """A scalar."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


class Boxes(torch.nn.Module):
    """Rows of four as `[n, 2, 1, 2]`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 2, 1, 2)


class Flat(torch.nn.Module):
    """All elements, one after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten()


class Ragged(torch.nn.Module):
    """Sums of the pieces of a flat tensor, whose lengths it is told."""

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        lengths: list[int] = counts.to(torch.int64).tolist()
        return torch.stack([part.sum() for part in torch.split(x, lengths)]).reshape(-1, 1)


class Segments(torch.nn.Module):
    """Sums of the pieces of a flat tensor that end at ENDS, and two times the tensor."""

    def forward(self, VALUES: torch.Tensor, ENDS: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: N803
        nothing = torch.zeros(1)
        upper = torch.cat([nothing, VALUES.cumsum(0)])[ENDS.to(torch.int64)]
        lower = torch.cat([nothing, upper])[:-1]
        return (upper - lower).reshape(-1, 1), VALUES * 2


class Pairs(torch.nn.Module):
    """Each element twice: ``[n, 2]`` of ``[n]``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, x], 1)


class Number(torch.nn.Module):
    """Takes what no request can give."""

    def forward(self, x: torch.Tensor, power: int) -> torch.Tensor:
        return x**power


class Mixed(torch.nn.Module):
    """Tensors in an argument, in a dictionary and by keyword; results in a dictionary and in a list within it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), 2.0))

    def forward(
        self, x: torch.Tensor, tensors: dict[str, torch.Tensor], *, bias: torch.Tensor
    ) -> dict[str, Any]:
        return {"sum": x * self.scale + tensors["a"] + bias, "rest": [x - tensors["a"]]}


def save_script(path: Path, module: torch.nn.Module) -> Path:
    """`module`, scripted, as `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module), path)
    return path


def save_exported(
    path: Path, module: torch.nn.Module, example: Sequence[Any], *, batched: bool = True
) -> Path:
    """`module`, exported with that example, as `path`; the first dimension of every tensor is free if `batched`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    free: Any = {0: torch.export.Dim.AUTO}
    shapes = torch.utils._pytree.tree_map(lambda _: free, tuple(example)) if batched else None  # noqa: SLF001 - PyTorch has no public name for it
    torch.export.save(torch.export.export(module.eval(), tuple(example), dynamic_shapes=shapes), path)
    return path


def save_package(path: Path) -> Path:
    """`Mixed`, compiled by AOTInductor for 2 to 64 rows of 4, as `path`. Takes a minute."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {0: torch.export.Dim("rows", max=64)}
    program = torch.export.export(
        Mixed().eval(),
        (torch.ones(3, 4), {"a": torch.ones(3, 4)}),
        {"bias": torch.ones(3, 4)},
        dynamic_shapes={"x": rows, "tensors": {"a": rows}, "bias": rows},
    )
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))  # noqa: SLF001 - PyTorch has no public name for it
    return path


class RenamedSelf(torch.nn.Module):
    """Adds 1. Its first argument has a name of its own, and so has what TorchScript writes of it."""

    def forward(this, x: torch.Tensor) -> torch.Tensor:  # noqa: N805
        """One more than `x`."""
        return x + 1
