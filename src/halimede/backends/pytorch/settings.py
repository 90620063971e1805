"""What PyTorch is told: parameters of a model, and threads and executors, which the whole process shares.

Keys are those of Triton's PyTorch backend. Threads are set once a process, by the first model; the others share them.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock

import torch
from torch.jit._fuser import optimized_execution

from halimede.backends.base import BackendOptions
from halimede.backends.parameters import choice_parameter, integer_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")

_SWITCH = {"true": "true", "false": "false", "1": "true", "0": "false"}
_AS_IT_IS = nullcontext()

_IGNORED = {
    "ENABLE_NVFUSER": "PyTorch 2 has no NvFuser any more",
    "ENABLE_TENSOR_FUSER": "PyTorch decides itself when it fuses",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model's programs run.

    Attributes:
        inference_mode: under `torch.inference_mode`; otherwise under `torch.no_grad`, which a few programs need.
        optimized: TorchScript's executor optimises the graph.
        shared: all instances on a device use one module, and so its weights.
        clean_cache: give a GPU's cached memory back after each run.
    """

    inference_mode: bool
    optimized: bool
    shared: bool
    clean_cache: bool

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Settings":
        """The model's settings.

        Raises:
            InvalidArgumentError: a parameter has no such value.
        """
        for key, reason in _IGNORED.items():
            if _switch(config, key) is not None:
                logger.info("model '%s': parameter %s has no effect: %s", config.name, key, reason)
        return cls(
            inference_mode=_switch(config, "INFERENCE_MODE") is not False,
            optimized=not _switch(config, "DISABLE_OPTIMIZED_EXECUTION"),
            shared=bool(_switch(config, "ENABLE_WEIGHT_SHARING")),
            clean_cache=bool(_switch(config, "ENABLE_CACHE_CLEANING")),
        )

    def without_grad(self) -> AbstractContextManager[object]:
        """What runs happen under, one after the other; its flag is that of the running thread alone."""
        context: AbstractContextManager[object] = (
            torch.inference_mode() if self.inference_mode else torch.no_grad()
        )
        return context

    def optimizing(self) -> AbstractContextManager[object]:
        """What one run happens under besides."""
        return _AS_IT_IS if self.optimized else optimized_execution(False)


class _Process:
    """What all models of the process share: set by the first that says it, and reported when another differs."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: dict[str, int] = {}

    def set_up(self, config: ModelConfig, options: BackendOptions) -> None:
        """Apply the parameters of the model that are the process's.

        Raises:
            InvalidArgumentError: a parameter has no such value.
        """
        intra = _threads(config, "INTRA_OP_THREAD_COUNT", "NUM_THREADS")
        inter = _threads(config, "INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS")
        executor, profiling = _switch(config, "ENABLE_JIT_EXECUTOR"), _switch(config, "ENABLE_JIT_PROFILING")
        cudnn = _switch(config, "DISABLE_CUDNN")
        with self._lock:
            self._count(config, "INTRA_OP_THREAD_COUNT", intra, options.cpu_threads)
            self._count(config, "INTER_OP_THREAD_COUNT", inter, options.cpu_threads)
            if executor is not None:
                torch._C._jit_set_profiling_executor(executor)  # noqa: SLF001 - there is no other way
            if profiling is not None:
                torch._C._jit_set_profiling_mode(profiling)  # noqa: SLF001 - there is no other way
            if cudnn is not None:
                torch.backends.cudnn.enabled = not cudnn

    def _count(self, config: ModelConfig, key: str, wanted: int | None, default: int) -> None:
        current = self._threads.get(key)
        if current is None:
            count = self._threads[key] = wanted or default
            if key == "INTRA_OP_THREAD_COUNT":
                torch.set_num_threads(count)
                return
            try:
                torch.set_num_interop_threads(count)
            except RuntimeError as error:  # something has used them already
                self._threads[key] = torch.get_num_interop_threads()
                logger.warning("model '%s': %s stays as it is: %s", config.name, key, error)
        elif wanted not in (None, current):
            logger.warning(
                "model '%s': %s %s has no effect: PyTorch's threads are the whole process's, and the first model "
                "has set %d",
                config.name,
                key,
                wanted,
                current,
            )


process = _Process()


def _threads(config: ModelConfig, key: str, other: str) -> int | None:
    """The count by either name; the second is that of Triton's Python runtime for PyTorch."""
    counts = {name: integer_parameter(config, name, 1) for name in (key, other)}
    if None not in counts.values() and counts[key] != counts[other]:
        msg = (
            f"model '{config.name}': parameters '{key}' and '{other}' mean the same, but are {counts[key]} and "
            f"{counts[other]}; leave one out"
        )
        raise InvalidArgumentError(msg)
    return counts[key] or counts[other]


def _switch(config: ModelConfig, key: str) -> bool | None:
    choice = choice_parameter(config, key, _SWITCH)
    return None if choice is None else choice == "true"
