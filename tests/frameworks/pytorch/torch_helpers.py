"""Sources and configurations of PyTorch models."""

from pathlib import Path

import torch

from halimede.backends.base import ModelSource
from halimede.config.parse import parse_text
from tests.backends.helpers import Loaded
from tests.frameworks.pytorch import torch_models

ADD_SUB = {"INPUT0": "FP32 [2]", "INPUT1": "FP32 [2]"}


def config_text(
    inputs: dict[str, str], outputs: dict[str, str], batch: int = 8, parameters: dict[str, str] | None = None
) -> str:
    """The text of a configuration; tensors as in ``{"x": "FP32 [4]"}``."""
    parts = [f'backend: "pytorch" max_batch_size: {batch}']
    for word, tensors in (("input", inputs), ("output", outputs)):
        for name, text in tensors.items():
            datatype, _, dims = text.partition(" ")
            parts.append(f'{word} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }}')
    for key, value in (parameters or {}).items():
        parts.append(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}')
    return "\n".join(parts)


def source_of(directory: Path, module: torch.nn.Module, text: str) -> ModelSource:
    """Model `m` in `directory`, with the module scripted as its file."""
    torch_models.save_script(directory / "m" / "1" / "model.pt", module)
    return source_at(directory, text)


def source_at(directory: Path, text: str) -> ModelSource:
    """Model `m` in `directory`, whose files are there already."""
    config = parse_text(text, "test")
    config.name = "m"
    return ModelSource("m", 1, directory / "m", config)


def load(
    directory: Path,
    module: torch.nn.Module,
    inputs: dict[str, str],
    outputs: dict[str, str],
    batch: int = 8,
    parameters: dict[str, str] | None = None,
) -> Loaded:
    """The module, loaded from TorchScript with that configuration."""
    return Loaded(source_of(directory, module, config_text(inputs, outputs, batch, parameters)))
