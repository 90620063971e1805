"""Settings of the TensorRT backend: `--backend-config=tensorrt,…` and the configuration of a model.

Names and values are those of Triton's TensorRT backend.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from halimede.backends.parameters import choice_parameter
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup, ModelOptimizationPolicy
from halimede.core.errors import InvalidArgumentError, UnsupportedError

logger = logging.getLogger("halimede")

STATIC = "STATIC"
ON_PROFILE_CHANGE = "ON_PROFILE_CHANGE"

_TRUTHS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
_POLICIES = ("BLOCKING", "DEVICE_BLOCKING")


@dataclass(frozen=True, slots=True)
class TensorRTSettings:
    """What decides how a model's engine is opened and run.

    Attributes:
        allocation: when contexts take the memory for their activations: `STATIC` (when they are made) or
            `ON_PROFILE_CHANGE` (as much as the profile in use needs).
        plugins: shared libraries with TensorRT plugins, to load before the engine.
        version_compatible: engines may bring code of their own for other versions of TensorRT, which is run.
        pinned_inputs: inputs are copied to the GPU from pinned memory.
        pinned_outputs: outputs are copied from the GPU to pinned memory.
        priority: of the stream: 1 for the highest, -1 for the lowest, 0 for the default.
    """

    allocation: str = STATIC
    plugins: tuple[str, ...] = ()
    version_compatible: bool = False
    pinned_inputs: bool = True
    pinned_outputs: bool = True
    priority: int = 0

    @classmethod
    def of(cls, config: ModelConfig, settings: Mapping[str, str]) -> "TensorRTSettings":
        """What the configuration and the command line say.

        Raises:
            InvalidArgumentError: a setting has no such value.
            UnsupportedError: the configuration asks for something that is not available.
        """
        _refuse(config)
        _switch(
            settings, "coalesce-request-input"
        )  # requests are gathered to one copy an input, whatever it says
        policy = settings.get("execution-policy", "BLOCKING")
        if policy not in _POLICIES:
            msg = f"{_where('execution-policy')} must be {' or '.join(_POLICIES)}, got '{policy}'"
            raise InvalidArgumentError(msg)
        if policy == "DEVICE_BLOCKING":
            logger.info(
                "%s has no effect: every instance has a thread of its own", _where("execution-policy")
            )
        optimization = config.optimization
        priorities = {
            ModelOptimizationPolicy.PRIORITY_MAX: 1,
            ModelOptimizationPolicy.PRIORITY_MIN: -1,
        }
        choices = {STATIC: STATIC, ON_PROFILE_CHANGE: ON_PROFILE_CHANGE}
        pinned = [
            not optimization.HasField(name) or getattr(optimization, name).enable
            for name in ("input_pinned_memory", "output_pinned_memory")
        ]
        return cls(
            allocation=choice_parameter(config, "execution_context_allocation_strategy", choices) or STATIC,
            plugins=tuple(path.strip() for path in settings.get("plugins", "").split(";") if path.strip()),
            version_compatible=_switch(settings, "version-compatible"),
            pinned_inputs=pinned[0],
            pinned_outputs=pinned[1],
            priority=priorities.get(optimization.priority, 0),
        )


def model_file(config: ModelConfig, capability: str) -> str:
    """The name of the engine's file for GPUs of that compute capability, such as ``9.0``."""
    return config.cc_model_filenames.get(capability) or config.default_model_filename or "model.plan"


def _refuse(config: ModelConfig) -> None:
    """Refuse what the backend cannot do.

    Raises:
        UnsupportedError: the text names it.
    """
    optimization = config.optimization
    asked = {
        "optimization.cuda.graphs": optimization.cuda.graphs,
        "optimization.cuda.busy_wait_events": optimization.cuda.busy_wait_events,
        "optimization.cuda.output_copy_stream": optimization.cuda.output_copy_stream,
        "optimization.eager_batching": optimization.eager_batching,
        "instance_group.secondary_devices": any(group.secondary_devices for group in config.instance_group),
    }
    for name, value in asked.items():
        if value:
            msg = (
                f"model '{config.name}' sets '{name}', which the TensorRT backend does not have in this version; "
                f"remove it: answers are the same without"
            )
            raise UnsupportedError(msg)
    for group in config.instance_group:
        if group.kind not in (ModelInstanceGroup.KIND_GPU, ModelInstanceGroup.KIND_AUTO):
            kind = ModelInstanceGroup.Kind.Name(group.kind)
            msg = (
                f"unable to load model '{config.name}': instance group '{group.name}' has kind {kind}; TensorRT "
                f"runs on GPUs only (KIND_GPU)"
            )
            raise UnsupportedError(msg)


def _switch(settings: Mapping[str, str], key: str) -> bool:
    text = settings.get(key, "false")
    if text.lower() not in _TRUTHS:
        raise InvalidArgumentError(f"{_where(key)} must be true or false, got '{text}'")
    return _TRUTHS[text.lower()]


def _where(key: str) -> str:
    return f"--backend-config=tensorrt,{key}"
