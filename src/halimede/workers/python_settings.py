"""Settings of the Python backend: `--backend-config=python,<name>=<value>` and parameters of a model.

Settings of Triton's backend that have nothing to act on here, as there is no pool of shared memory and no pool of
threads, are checked as Triton checks them and change nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from halimede.backends.parameters import choice_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.workers.environments import EnvironmentSettings
from halimede.workers.output_checks import STRICT
from halimede.workers.slow_executions import SLOW_SECONDS

FINALIZE_SECONDS = 30.0
"""How long a model may take to finalize by default (`stub-timeout-seconds`)."""

EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT_SECONDS"
SLOW_EXECUTION = "SLOW_EXECUTION_SECONDS"
CONCURRENCY = "MAX_CONCURRENT_EXECUTIONS"
_FORCE_CPU = "FORCE_CPU_ONLY_INPUT_TENSORS"

_MIN_SHM_BYTES = 1 << 20
_WITHOUT_EFFECT = frozenset(
    {
        "shm-default-byte-size",
        "shm-growth-byte-size",
        "shm-region-prefix-name",
        "shm_message_queue_size",
        "thread-pool-size",
    }
)

logger = logging.getLogger("halimede")


@dataclass(frozen=True, slots=True)
class PythonSettings:
    """How the instances of a model run.

    Attributes:
        execution_timeout_s: how long an execution may take before the worker is killed; 0 for ever.
        slow_s: an execution that takes longer is logged; 0 for none.
        concurrency: how many executions of a coroutine `execute` one instance runs at once.
        strict: responses that do not fit the configuration are errors.
    """

    execution_timeout_s: float = 0
    slow_s: float = SLOW_SECONDS
    concurrency: int = 1
    strict: bool = False

    @classmethod
    def read(cls, config: ModelConfig, settings: Mapping[str, str]) -> "PythonSettings":
        """The settings of a model.

        Args:
            config: the model's configuration, whose parameters go first.
            settings: `--backend-config` for the Python backend.

        Raises:
            HalimedeError: a value is no value for its setting; the text says what would be.
        """
        texts = {name: value.string_value for name, value in config.parameters.items()}
        if texts.get(_FORCE_CPU, "yes") not in ("yes", "no"):
            raise UnsupportedError(f"Incorrect value for {_FORCE_CPU}: {texts[_FORCE_CPU]}'")
        timeout_s = _of_model(config, EXECUTION_TIMEOUT, settings, "execution-timeout-seconds", 0)
        slow_s = _of_model(config, SLOW_EXECUTION, settings, "slow-execution-seconds", SLOW_SECONDS)
        count = texts.get(CONCURRENCY, "1")
        if not (count.isdecimal() and 1 <= int(count) <= 1024):
            raise InvalidArgumentError(
                f"model '{config.name}': the parameter {CONCURRENCY} must be a number from 1 to 1024; got '{count}'"
            )
        strict = choice_parameter(config, STRICT, {"true": "true", "false": "false"}) == "true"
        return cls(timeout_s, slow_s, int(count), strict)


def check_backend_settings(settings: Mapping[str, str]) -> None:
    """Hold the backend's settings against what Triton allows, and log which of them change nothing here.

    Raises:
        InvalidArgumentError: a value is none for its setting.
    """
    for name in _WITHOUT_EFFECT & settings.keys():
        logger.warning(
            "--backend-config=python,%s changes nothing: shared memory is taken as it is needed, and there is no pool "
            "of threads",
            name,
        )
    where = "--backend-config=python,"
    if _whole(where, "shm-default-byte-size", settings, _MIN_SHM_BYTES) < _MIN_SHM_BYTES:
        raise InvalidArgumentError("shm-default-byte-size can't be smaller than 4 MiBs")
    if _whole(where, "shm-growth-byte-size", settings, _MIN_SHM_BYTES) <= 0:
        raise InvalidArgumentError("shm-growth-byte-size can't be smaller than or equal to zero.")
    for name in ("thread-pool-size", "shm_message_queue_size"):
        if _whole(where, name, settings, 1) < 1:
            raise InvalidArgumentError(f"{where}{name} must be at least 1; got '{settings[name]}'")
    if settings.get("shm-region-prefix-name") == "":
        raise InvalidArgumentError(f"{where}shm-region-prefix-name must not be empty")
    EnvironmentSettings.read(settings)
    finalize_seconds(settings)


def finalize_seconds(settings: Mapping[str, str]) -> float:
    """How long a model may take to finalize before its process is killed.

    Raises:
        InvalidArgumentError: the setting is no number of seconds.
    """
    text = settings.get("stub-timeout-seconds")
    return (
        FINALIZE_SECONDS if text is None else _seconds("--backend-config=python,stub-timeout-seconds", text)
    )


def _whole(where: str, name: str, settings: Mapping[str, str], default: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{where}{name} must be a whole number; got '{text}'") from None


def _of_model(
    config: ModelConfig, parameter: str, settings: Mapping[str, str], setting: str, default: float
) -> float:
    """A number of seconds: the model's parameter, or else the backend's setting."""
    if parameter in config.parameters:
        where = f"model '{config.name}': the parameter {parameter}"
        return _seconds(where, config.parameters[parameter].string_value)
    text = settings.get(setting)
    return default if text is None else _seconds(f"--backend-config=python,{setting}", text)


def _seconds(where: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidArgumentError(f"{where} must be a number of seconds, 0 for no limit; got '{text}'")
    return seconds
