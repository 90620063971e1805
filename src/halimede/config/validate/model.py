"""The model as a whole: platform and backend, batch size, response cache."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from halimede.config.autofill import ENSEMBLE
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.problem import Problem

_OUTSIDE: Final = "must name a file inside the directory of a version, by a relative path without '..'"


def model_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of platform, backend and batch size."""
    name = config.name
    if not config.platform and not config.backend:
        message = f"must specify 'platform' or 'backend' for '{name}'"
        fix = 'platform: "ensemble"' if config.HasField("ensemble_scheduling") else 'backend: "onnxruntime"'
        yield Problem(name, "backend", message, fix)
    if ENSEMBLE in (config.platform, config.backend) and (config.platform != ENSEMBLE or config.backend):
        message = f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type"
        where = "backend" if config.backend else "platform"
        fix = "remove backend" if config.platform == ENSEMBLE else f'replace {where} by platform: "ensemble"'
        yield Problem(name, where, message, fix)
    if config.max_batch_size < 0:
        message = f"'max_batch_size' must be non-negative value for {name}"
        yield Problem(name, "max_batch_size", message, "max_batch_size: 0")


def file_name_problems(config: ModelConfig) -> Iterator[Problem]:
    """Names of model files that lead out of the directory of a version."""
    named = [("default_model_filename", config.default_model_filename)]
    named += ((f'cc_model_filenames["{key}"]', name) for key, name in config.cc_model_filenames.items())
    for where, name in named:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            message = f"{where} '{name}' {_OUTSIDE}"
            fix = f'default_model_filename: "{path.name.strip(".") or "model.onnx"}"'
            yield Problem(config.name, where, message, fix)


def cache_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of the response cache, which cannot serve every kind of model."""
    if not config.response_cache.enable:
        return
    if config.HasField("sequence_batching"):
        yield _uncacheable(config, "sequence batching scheduler")
    if config.model_transaction_policy.decoupled:
        yield uncacheable_if_decoupled(config)


def uncacheable_if_decoupled(config: ModelConfig) -> Problem:
    """What is wrong with a configuration that enables the response cache if the model is decoupled."""
    return _uncacheable(config, "'decoupled' transaction policy")


def _uncacheable(config: ModelConfig, why: str) -> Problem:
    message = (
        f"Response Cache does not currently support model {config.name} with {why}. "
        f"Please disable the response cache."
    )
    return Problem(config.name, "response_cache", message, "response_cache { enable: false }")
