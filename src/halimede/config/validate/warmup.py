"""Warm-up samples: whether requests can be made of them."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.problem import Problem

MAX_REQUESTS = 100_000
"""So many requests the warm-up of an instance may make, with all samples together."""


def warmup_count_problems(config: ModelConfig) -> Iterator[Problem]:
    """A problem if the warm-up samples ask for more requests than they may."""
    total = 0
    for index, sample in enumerate(config.model_warmup):
        total += sample.batch_size * max(1, sample.count)
        if total > MAX_REQUESTS:
            message = (
                f"model_warmup sample '{sample.name}' of model {config.name} has a batch_size of "
                f"{sample.batch_size} and a count of {sample.count}, which makes {total} requests with the samples "
                f"before it, but a warm-up may make at most {MAX_REQUESTS}"
            )
            yield Problem(config.name, f"model_warmup[{index}].count", message, "count: 1")
            return


def warmup_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the warm-up samples that will be run."""
    if config.HasField("ensemble_scheduling"):  # an ensemble may have none at all, which is told elsewhere
        return
    for index, sample in enumerate(config.model_warmup):
        if sample.batch_size == 0:  # such a sample is skipped
            continue
        for name in sorted(sample.inputs):
            dims = list(sample.inputs[name].dims)
            if any(dim < 0 for dim in dims):
                message = (
                    f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
                )
                where = f'model_warmup[{index}].inputs["{name}"].dims'
                yield Problem(config.name, where, message, f"dims: {_fixed(config, name, dims)}")


def _fixed(config: ModelConfig, name: str, dims: list[int]) -> list[int]:
    """Those dims with the input's own, or else 1, in place of variable ones."""
    own = next((list(entry.dims) for entry in config.input if entry.name == name), [])
    if len(own) != len(dims):
        own = dims
    return [dim if dim >= 0 else max(instead, 1) for dim, instead in zip(dims, own, strict=True)]
