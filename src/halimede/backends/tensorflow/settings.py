"""Settings of a model that TensorFlow runs: its parameters, and `--backend-config=tensorflow,…`.

Keys are those of Triton's TensorFlow backend. What asks for something that is not there is refused by name; what
only has no effect on a CPU is reported.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from halimede.backends.parameters import integer_parameter, text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, UnsupportedError

logger = logging.getLogger("halimede")

_SWITCH = {
    "true": True,
    "on": True,
    "1": True,
    "yes": True,
    "false": False,
    "off": False,
    "0": False,
    "no": False,
}
_ACCELERATORS = ("tensorrt", "auto_mixed_precision", "gpu_io")


@dataclass(frozen=True, slots=True)
class TensorFlowSettings:
    """How a model's graph is opened and run.

    Attributes:
        intra_threads: threads of one operator.
        inter_threads: operators that run at once; 1 runs them one after the other.
        own_threads: sessions have threads of their own for operators that run at once; otherwise all of the process
            share those of the first.
        tags: all tags of the graph in a SavedModel.
        signature: signature of a SavedModel; None for the usual one.
        sharing: instances that share a session at the most; None for any number.
        init_file: JSON file that names the operations to run first; "" for none.
        soft_placement: an operator that the graph puts on a device without a kernel for it runs elsewhere.
        level: of `optimization.graph`: -1 for none, 0 for the usual, 1 and up for more.
        libraries: shared libraries with further operators.
    """

    intra_threads: int
    inter_threads: int
    own_threads: bool
    tags: tuple[str, ...]
    signature: str | None
    sharing: int | None
    init_file: str
    soft_placement: bool
    level: int
    libraries: tuple[str, ...]

    @classmethod
    def of(cls, config: ModelConfig, backend: Mapping[str, str], cpu_threads: int) -> "TensorFlowSettings":
        """The settings of a configuration.

        Args:
            config: the configuration.
            backend: `--backend-config` for this backend.
            cpu_threads: threads that the server may use.

        Raises:
            InvalidArgumentError: a setting has no such value.
            UnsupportedError: it asks for what this backend does not have.
        """
        _check_backend(config, backend)
        _check_accelerators(config)
        return cls(
            intra_threads=integer_parameter(config, "TF_NUM_INTRA_THREADS") or cpu_threads,
            inter_threads=integer_parameter(config, "TF_NUM_INTER_THREADS") or 1,
            own_threads=_switch(
                f"model '{config.name}': parameter 'TF_USE_PER_SESSION_THREADS'",
                text_parameter(config, "TF_USE_PER_SESSION_THREADS"),
                default=True,
            ),
            tags=_tags(text_parameter(config, "TF_GRAPH_TAG") or "serve"),
            signature=text_parameter(config, "TF_SIGNATURE_DEF") or None,
            sharing=integer_parameter(config, "MAX_SESSION_SHARE_COUNT", 1),
            init_file=text_parameter(config, "TF_INIT_OPS_FILE") or "",
            soft_placement=_switch(
                "--backend-config=tensorflow,allow-soft-placement",
                backend.get("allow-soft-placement"),
                default=True,
            ),
            level=config.optimization.graph.level,
            libraries=tuple(config.model_operations.op_library_filename),
        )


def _check_backend(config: ModelConfig, backend: Mapping[str, str]) -> None:
    version = backend.get("version", "2")
    if version != "2":
        msg = f"--backend-config=tensorflow,version={version}: only version 2 of TensorFlow is supported"
        raise UnsupportedError(msg)
    fraction = backend.get("gpu-memory-fraction")
    if fraction is None:
        return
    try:
        known = 0 <= float(fraction) <= 1
    except ValueError:
        known = False
    if not known:
        msg = (
            f"--backend-config=tensorflow,gpu-memory-fraction must be a number from 0 to 1, got '{fraction}'"
        )
        raise InvalidArgumentError(msg)
    logger.warning(
        "model '%s': --backend-config=tensorflow,gpu-memory-fraction has no effect: TensorFlow models run on CPUs",
        config.name,
    )


def _check_accelerators(config: ModelConfig) -> None:
    accelerators = config.optimization.execution_accelerators
    for accelerator in accelerators.cpu_execution_accelerator:
        msg = (
            f"model '{config.name}': TensorFlow has no CPU Execution Accelerator '{accelerator.name}'; remove it "
            f"from optimization.execution_accelerators"
        )
        raise UnsupportedError(msg)
    for accelerator in accelerators.gpu_execution_accelerator:
        if accelerator.name not in _ACCELERATORS:
            msg = f"unknown Execution Accelerator '{accelerator.name}' is requested"
            raise InvalidArgumentError(msg)
        logger.warning(
            "model '%s': the Execution Accelerator '%s' has no effect: TensorFlow models run on CPUs",
            config.name,
            accelerator.name,
        )


def _tags(text: str) -> tuple[str, ...]:
    return tuple(sorted(filter(None, (tag.strip() for tag in text.split(",")))))


def _switch(what: str, text: str | None, *, default: bool) -> bool:
    if text is None:
        return default
    value = _SWITCH.get(text.lower())
    if value is None:
        raise InvalidArgumentError(f"{what} must be true or false, got '{text}'")
    return value
