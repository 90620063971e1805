"""Warm-up samples against the inputs of a model, whose configuration is complete."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from google.protobuf.text_format import MessageToString

from halimede.backends.base import ModelSource
from halimede.config.model_config_pb2 import ModelConfig, ModelWarmup
from halimede.config.signature import Signature
from halimede.config.validate import Problem
from halimede.core.errors import HalimedeError
from halimede.engine.lifecycle.warmup import check_sample


def warmup_input_problems(config: ModelConfig, directory: Path) -> Iterator[Problem]:
    """Samples of which no request can be made, so that the model would not be loaded.

    Inputs that the model does not have are warned of when it is loaded; beside one that lacks they are misspelt.

    Args:
        config: the complete configuration.
        directory: the model's directory.
    """
    signature = Signature.from_config(config)
    source = ModelSource(config.name, 1, directory, config)
    for index, sample in enumerate(config.model_warmup):
        if not sample.batch_size:
            continue
        where = f"model_warmup[{index}]"
        unknown = sorted(sample.inputs.keys() - signature.backend_inputs.keys())
        lacking = [
            name for name, spec in signature.inputs.items() if name not in sample.inputs and not spec.optional
        ]
        for name in unknown:
            close = get_close_matches(name, lacking, 1) or (lacking[:1] if len(lacking) == 1 else [])
            message = f"the warm-up sample '{sample.name}' sets input '{name}', which the model does not have"
            fix = f'remove inputs {{ key: "{name}" }}'
            if close:
                lacking.remove(close[0])
                fix = f'inputs {{ key: "{close[0]}" value {{ {_line(sample.inputs[name])} }} }}'
            yield Problem(config.name, f'{where}.inputs["{name}"]', message, fix)
        if unknown:
            continue
        try:
            check_sample(source, signature, sample)
        except HalimedeError as error:
            yield _about_sample(config, signature, sample, where, error.message)


def _about_sample(
    config: ModelConfig, signature: Signature, sample: ModelWarmup, where: str, message: str
) -> Problem:
    """The problem of a sample with its place and fix, as far as they can be told."""
    for name, spec in signature.inputs.items():
        if name not in sample.inputs:
            if not spec.optional:
                dims = [max(dim, 1) for dim in spec.dims]
                value = f"data_type: {spec.datatype.config_name} dims: {dims} zero_data: true"
                fix = f'inputs {{ key: "{name}" value {{ {value} }} }}'
                return Problem(config.name, f"{where}.inputs", message, fix)
            continue
        given = sample.inputs[name]
        place = f'{where}.inputs["{name}"]'
        if given.data_type != spec.datatype.number:
            return Problem(
                config.name, f"{place}.data_type", message, f"data_type: {spec.datatype.config_name}"
            )
        dims = [max(dim, 1) for dim in spec.dims]
        fits = len(given.dims) == len(spec.dims) and all(
            dim in (-1, own) for dim, own in zip(spec.dims, given.dims, strict=True)
        )
        if not fits:
            return Problem(config.name, f"{place}.dims", message, f"dims: {dims}")
        if given.WhichOneof("input_data_type") is None:
            fix = f'inputs {{ key: "{name}" value {{ {_line(given)} zero_data: true }} }}'
            return Problem(config.name, place, message, fix)
    return Problem(config.name, where, message)


def _line(given: ModelWarmup.Input) -> str:
    return MessageToString(given, as_one_line=True, use_short_repeated_primitives=True).strip()
