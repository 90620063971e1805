"""Which models the steps of an ensemble mean where repositories may hold models of equal names."""

from collections.abc import Sequence
from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
from halimede.repository.layout import find_model, identifier


def bind_steps(config: ModelConfig, repository: Path, repositories: Sequence[Path]) -> None:
    """Give the steps of an ensemble the identifiers of the models that they mean, as things are on disk.

    That is the model in the ensemble's own repository, or else the only one of that name. Where there is none, the
    step waits for one in its own repository; where there are several, the name stays as it is, which is no model's.

    Args:
        config: the ensemble's; ``model_namespace`` of each step is filled in.
        repository: where the ensemble is.
        repositories: where there are models.

    Raises:
        OSError: a repository cannot be read.
    """
    for step in config.ensemble_scheduling.step if config.HasField("ensemble_scheduling") else ():
        step.ClearField("model_namespace")
        found = [directory.parent for directory in find_model(repositories, step.model_name)]
        if repository in found or not found:
            found = [repository]
        if len(found) == 1:
            step.model_namespace = str(found[0])
            step.model_name = identifier(found[0], step.model_name)
