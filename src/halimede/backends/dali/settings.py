"""The settings of a DALI model, which are those of Triton's DALI backend (its `docs/config.md`)."""

from collections.abc import Mapping
from dataclasses import dataclass

from halimede.backends.dali.definition import Definition
from halimede.backends.parameters import integer_parameter, text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError

_FORMER = {"split_outer_dim": "split_along_outer_axis"}


@dataclass(frozen=True, slots=True)
class DaliSettings:
    """What the parameters of a model say.

    Attributes:
        threads: threads of each instance; None for those that the pipeline says.
        split: outputs whose samples are each a number of rows.
    """

    threads: int | None
    split: tuple[str, ...]

    @classmethod
    def of(cls, config: ModelConfig) -> "DaliSettings":
        """The settings of a configuration.

        Raises:
            InvalidArgumentError: a parameter is of an older version, or has no such value.
        """
        for key, successor in _FORMER.items():
            if key in config.parameters:
                msg = f"model '{config.name}': the parameter '{key}' is called '{successor}' now; rename it"
                raise InvalidArgumentError(msg)
        split = text_parameter(config, "split_along_outer_axis") or ""
        return cls(
            threads=integer_parameter(config, "num_threads", 1),
            split=tuple(filter(None, split.split(":"))),
        )

    def threads_of(self, definition: Definition, cpu_threads: int) -> int:
        """Threads of an instance: the parameter, or the pipeline's, but then no more than the server has."""
        return self.threads or min(definition.num_threads or cpu_threads, cpu_threads)


def plugin_libraries(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The libraries with further operators, from ``--backend-config dali,plugin_libs=FILE:FILE``."""
    return tuple(filter(None, settings.get("plugin_libs", "").split(":")))
