"""A model's life: its class completes a configuration, or becomes a model that initializes and finalizes."""

import json
from typing import Any, Dict

from .errors import PlainError
from .model_config import ModelConfig
from .runtime import Runtime, Stage


def completed_config(runtime: Runtime, model_class: Any, config: str) -> str:
    """The configuration, as JSON, as the model's `auto_complete_config` completes it.

    Raises:
        PlainError: the function returns no configuration.
    """
    complete = getattr(model_class, "auto_complete_config", None)
    if complete is None:
        return config
    completed = complete(ModelConfig(config))
    if not isinstance(completed, ModelConfig):
        raise PlainError(
            f"auto_complete_config function in model '{runtime.model_name}' must return a valid pb.ModelConfig object."
        )
    return json.dumps(completed._model_config)


def prepare(runtime: Runtime, arguments: Dict[str, str]) -> None:
    """Note what the configuration says of executions, before the model's file is imported."""
    config = json.loads(arguments["model_config"])
    runtime.args = arguments
    runtime.decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
    runtime.iterative = bool((config.get("sequence_batching") or {}).get("iterative_sequence"))


def initialized(runtime: Runtime, model_class: Any, model_file: str) -> Any:
    """A model of the class that has initialized.

    Raises:
        PlainError: it has no `execute`.
    """
    runtime.initializing = True
    model = model_class()
    initialize = getattr(model, "initialize", None)
    if initialize is not None:
        initialize(dict(runtime.args))
    if not callable(getattr(model, "execute", None)):
        raise PlainError(f"Python model {model_file} does not implement `execute` method.")
    return model


def finalize(runtime: Runtime, model: Any) -> None:
    """Let the model finalize."""
    runtime.stage = Stage.FINALIZING
    runtime.stop_event_loop()
    finalize = getattr(model, "finalize", None)
    if finalize is not None:
        finalize()
