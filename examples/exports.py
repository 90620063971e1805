"""PyTorch modules as the files that are served: TorchScript, programs of `torch.export`, and ONNX."""

import logging
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters and modules say of their own parts: which are deprecated, and what they miss."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def save_torchscript(module: torch.nn.Module, example: Sequence[torch.Tensor], path: Path) -> None:
    """Trace the module with an example and write it as TorchScript.

    Shapes that the example has, and that the module does not compute with in Python, stay free.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _quiet(), torch.inference_mode():
        traced = torch.jit.trace(module, tuple(example))
        torch.jit.save(traced, path)


def exported(
    module: torch.nn.Module, example: Sequence[torch.Tensor], free: Sequence[dict[int, Any]]
) -> ExportedProgram:
    """The module as a program of `torch.export`.

    Args:
        module: in evaluation mode.
        example: arguments; a dimension that is to be free must be at least 2 in them.
        free: the free dimensions of each, as `dynamic_shapes` of `torch.export.export` has them.
    """
    with _quiet(), torch.no_grad():
        return torch.export.export(module, tuple(example), dynamic_shapes=tuple(free))


def save_exported(program: ExportedProgram, path: Path) -> None:
    """Write the program as a `.pt2` file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _quiet():
        torch.export.save(program, path)


def save_onnx(program: ExportedProgram, inputs: Sequence[str], outputs: Sequence[str], path: Path) -> None:
    """Write the program as one ONNX file, weights included, with those names of its inputs and outputs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _quiet():
        torch.onnx.export(
            program,
            f=path,
            input_names=inputs,
            output_names=outputs,
            external_data=False,
            verbose=False,
        )


def new_repository(directory: Path, configurations: Path) -> Path:
    """The repository DIRECTORY/models, made anew with a copy of those configurations and no model files yet."""
    repository = directory / "models"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(configurations, repository)
    return repository
