"""What a configuration says of an ensemble, be it right or not."""

from halimede.config.autofill import ENSEMBLE
from halimede.config.model_config_pb2 import ModelConfig


def is_ensemble(config: ModelConfig) -> bool:
    """Whether the configuration is meant for an ensemble."""
    return config.platform == ENSEMBLE or (config.HasField("ensemble_scheduling") and not config.backend)


def needs_of(config: ModelConfig) -> tuple[str, ...]:
    """The models of an ensemble's steps, each once, in the order of the steps."""
    return tuple(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))
