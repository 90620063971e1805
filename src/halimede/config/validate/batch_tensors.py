"""Tensors made from a batch, and outputs cut along a batch: the helpers of ragged batching."""

import logging
from collections.abc import Collection, Iterator

from halimede.config.ensembles import is_ensemble
from halimede.config.model_config_pb2 import (
    TYPE_FP32,
    TYPE_INT32,
    BatchInput,
    BatchOutput,
    ModelConfig,
    ModelInput,
    ModelOutput,
)
from halimede.config.validate.problem import Problem

logger = logging.getLogger("halimede")


def batch_tensor_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of batch inputs and batch outputs."""
    for problem in _batch_tensor_problems(config):
        yield problem.naming_model()


def warn_of_batch_tensors(config: ModelConfig) -> None:
    """Log a warning for what is made from a batch, or cut with its shapes, and has no effect."""
    if not (config.batch_input or config.batch_output):
        return
    if _answers_singly(config):
        logger.warning(
            "model '%s': batch_input and batch_output have no effect on Python models and ensembles, in which each "
            "request keeps its own tensors",
            config.name,
        )
        return
    for entry in config.input:
        varies = config.max_batch_size > 0 and -1 in _backend_dims(entry) and not entry.allow_ragged_batch
        if varies and any(entry.name in each.source_input for each in config.batch_input):
            logger.warning(
                "model '%s': a batch_input is made from input '%s', but requests of different shapes do not share a "
                "batch, as that is not ragged; if they should, say allow_ragged_batch: true",
                config.name,
                entry.name,
            )


def _answers_singly(config: ModelConfig) -> bool:
    """Whether the model gets each request by itself, not joined with others."""
    return config.backend == "python" or is_ensemble(config)


def _batch_tensor_problems(config: ModelConfig) -> Iterator[Problem]:
    """Of a side that the configuration does not list, which the model then completes, no name is unknown."""
    ragged_first = sorted(config.input, key=lambda entry: not entry.allow_ragged_batch)
    inputs = dict.fromkeys(entry.name for entry in ragged_first)
    outputs = dict.fromkeys(entry.name for entry in config.output)
    for index, batch_input in enumerate(config.batch_input):
        where = f"batch_input[{index}]"
        kind = _kind_name(BatchInput.Kind, batch_input.kind)
        yield from _sources(
            config, list(batch_input.source_input), inputs, where, f"batch input kind '{kind}'"
        )
        if batch_input.data_type not in (TYPE_INT32, TYPE_FP32):
            message = "batch input data type must be TYPE_INT32 or TYPE_FP32"
            yield Problem(config.name, f"{where}.data_type", message, "data_type: TYPE_FP32")
    seen: set[str] = set()
    for index, batch_output in enumerate(config.batch_output):
        where = f"batch_output[{index}]"
        kind = _kind_name(BatchOutput.Kind, batch_output.kind)
        yield from _sources(
            config, list(batch_output.source_input), inputs, where, f"batch output kind '{kind}'"
        )
        for number, name in enumerate(batch_output.target_name):
            at = f"{where}.target_name[{number}]"
            if outputs and name not in outputs:
                message = f"unknown target output name '{name}'"
                yield Problem(config.name, at, message, _one_of("target_name", outputs))
            if name in seen:
                message = f"target output name '{name}' can only be specified once"
                yield Problem(config.name, at, message, f'remove target_name: "{name}"')
            seen.add(name)
        yield from _sizes(config, batch_output)


def _sizes(config: ModelConfig, batch_output: BatchOutput) -> Iterator[Problem]:
    """Variable dims of an output without a dim of the source input at the same place, which says their sizes."""
    if _answers_singly(config):
        return
    sources = [entry for entry in config.input if entry.name in batch_output.source_input]
    for index, output in enumerate(config.output):
        if output.name not in batch_output.target_name or len(sources) != 1:
            continue
        source = _backend_dims(sources[0])
        if -1 not in _backend_dims(output)[len(source) :]:
            continue
        message = (
            f"output '{output.name}' is cut with the shapes of input '{sources[0].name}', so its variable dims must be "
            f"where that has dims: among the first {len(source)}"
        )
        place, fix = f"output[{index}].dims", f"dims: [ {', '.join(map(str, source))} ]"
        if output.HasField("reshape"):
            place, fix = f"output[{index}].reshape", "remove reshape"
        yield Problem(config.name, place, message, fix)


def _backend_dims(entry: ModelInput | ModelOutput) -> list[int]:
    return list(entry.reshape.shape if entry.HasField("reshape") else entry.dims)


def _sources(
    config: ModelConfig, sources: list[str], inputs: Collection[str], where: str, subject: str
) -> Iterator[Problem]:
    if len(sources) != 1:
        message = f"{subject} expects 1 source input, got {len(sources)}"
        yield Problem(config.name, f"{where}.source_input", message, _one_of("source_input", inputs))
    for number, name in enumerate(sources):
        if inputs and name not in inputs:
            message = f"unknown source input name '{name}'"
            at = f"{where}.source_input[{number}]"
            yield Problem(config.name, at, message, _one_of("source_input", inputs))


def _one_of(field: str, names: Collection[str]) -> str:
    return f'{field}: "{next(iter(names))}"' if names else ""


def _kind_name(kinds: type[BatchInput.Kind] | type[BatchOutput.Kind], number: int) -> str:
    return kinds.Name(number) if number in kinds.values() else str(number)
