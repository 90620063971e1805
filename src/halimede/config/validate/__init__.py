"""What is wrong with a configuration by itself, without its files or its model; one module for each area.

Its settings are checked when it is read, and so are its tensors, unless the model may complete them. The rest is
checked when the model is loaded.
"""

import logging
from collections.abc import Iterator
from itertools import chain

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.batch_tensors import batch_tensor_problems, warn_of_batch_tensors
from halimede.config.validate.dynamic_batching import (
    batch_size_problems,
    dynamic_batching_problems,
    token_problems,
)
from halimede.config.validate.ensembles import ensemble_problems
from halimede.config.validate.enums import enum_problems
from halimede.config.validate.instances import instance_count_problems, instance_problems
from halimede.config.validate.metrics import metric_problems, warn_of_unknown_families
from halimede.config.validate.model import cache_problems, file_name_problems, model_problems
from halimede.config.validate.parameters import misspelt_parameters
from halimede.config.validate.problem import Problem
from halimede.config.validate.sequence_warnings import sequence_warnings
from halimede.config.validate.sequences import sequence_problems
from halimede.config.validate.states import state_problems
from halimede.config.validate.tensors import tensor_problems
from halimede.config.validate.warmup import warmup_count_problems, warmup_problems
from halimede.core.errors import InvalidArgumentError

__all__ = ["Problem", "check_file_names", "find_problems", "find_warnings", "validate", "validate_settings"]

logger = logging.getLogger("halimede")


def find_problems(
    config: ModelConfig, gpus: tuple[int, ...] = (), missing: str = "", *, complete: bool = True
) -> list[Problem]:
    """Everything that is wrong with a normalised configuration, the gravest first.

    Args:
        config: the configuration.
        gpus: device numbers of the GPUs that instances may be placed on.
        missing: why there are none, to be told where some are asked for; "" for no more than that.
        complete: the model does not complete it any more.
    """
    return list(_problems(config, gpus, missing, complete=complete))


def _problems(
    config: ModelConfig, gpus: tuple[int, ...], missing: str, *, complete: bool
) -> Iterator[Problem]:
    """As `find_problems`, found one by one, as all those of a large configuration may take long."""
    return chain(
        _setting_problems(config),
        batch_size_problems(config) if complete or config.max_batch_size else (),
        state_problems(config),
        tensor_problems(config),
        batch_tensor_problems(config),
        token_problems(config) if complete else (),
        instance_problems(config, gpus, missing),
        warmup_problems(config),
        enum_problems(config),
    )


def find_warnings(config: ModelConfig) -> list[Problem]:
    """Everything about a configuration with which nothing is wrong that may not do what its author thinks."""
    return [*sequence_warnings(config), *misspelt_parameters(config)]


def _setting_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of what a model never completes."""
    return chain(
        model_problems(config),
        file_name_problems(config),
        dynamic_batching_problems(config),
        sequence_problems(config),
        ensemble_problems(config),
        cache_problems(config),
        metric_problems(config),
        instance_count_problems(config),
        warmup_count_problems(config),
    )


def check_file_names(config: ModelConfig) -> None:
    """Return if the files of the model, which may be opened before all else is checked, are its own.

    Raises:
        InvalidArgumentError: one is not.
    """
    for problem in file_name_problems(config):
        raise InvalidArgumentError(problem.message)


def validate_settings(config: ModelConfig, *, complete: bool) -> None:
    """Return if nothing is wrong with the settings of a normalised configuration, its instances aside.

    Args:
        config: the configuration.
        complete: its batch size and its tensors are complete, and are to be right too.

    Raises:
        InvalidArgumentError: the gravest of what is wrong.
    """
    completed = (
        chain(tensor_problems(config), batch_tensor_problems(config), token_problems(config))
        if complete
        else ()
    )
    # one that the model sets is not known yet
    sizes = batch_size_problems(config) if complete or config.max_batch_size else ()
    for problem in chain(_setting_problems(config), sizes, completed):
        raise InvalidArgumentError(problem.message)


def validate(config: ModelConfig, gpus: tuple[int, ...] = (), missing: str = "") -> None:
    """Return if nothing is wrong with a normalised configuration; warns of what is merely without effect.

    Args:
        config: the configuration.
        gpus: device numbers of the GPUs that instances may be placed on.
        missing: why there are none, to be told where some are asked for; "" for no more than that.

    Raises:
        InvalidArgumentError: the gravest of what is wrong.
    """
    for problem in _problems(config, gpus, missing, complete=True):
        raise InvalidArgumentError(problem.message)
    warn_of_unknown_families(config)
    warn_of_batch_tensors(config)
    for warning in find_warnings(config):
        logger.warning("model '%s': %s", config.name, warning.message)
