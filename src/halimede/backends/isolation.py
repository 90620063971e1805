"""Where the instances of a model run: in the server's process, or each in a process of its own.

The model parameter `isolation` says which, "none" or "process"; without it, the model's backend. "thread" is another
word for "none". Nothing here
imports a framework: in the server, a model that is isolated never has its framework imported.
"""

from collections.abc import Callable, Mapping
from typing import Final

from halimede.backends.base import ModelSource
from halimede.backends.parameters import choice_parameter
from halimede.backends.pytorch import files as pytorch_files
from halimede.backends.registry import LANGUAGE_BACKENDS, PYTHON, backend_name
from halimede.core.errors import UnsupportedError

ISOLATION: Final = "isolation"
"""The model parameter."""

_CHOICES: Final = {word: word for word in ("none", "process", "thread")}

Default = Callable[[ModelSource], bool]
"""Whether a model of the backend runs in processes of its own, if the model does not say."""

DEFAULTS: Final[Mapping[str, Default]] = {
    "pytorch": pytorch_files.needs_process,
    "tensorflow": lambda source: True,  # it keeps the memory of the models that it had
}
"""By the backend's name; those that are not here run in the server's process."""

ALWAYS: Final = LANGUAGE_BACKENDS
"""Backends whose models run in processes of their own only."""


def runs_in_process(source: ModelSource) -> bool:
    """Whether each instance of the model runs in a process of its own.

    Raises:
        InvalidArgumentError: the parameter `isolation` is none of its values.
        UnsupportedError: the backend does not run its models so.
    """
    config = source.config
    choice = choice_parameter(config, ISOLATION, _CHOICES)
    name = backend_name(config)
    if name in ALWAYS:
        if choice not in (None, "process"):
            msg = (
                f"model '{config.name}': the backend '{name}' runs models in processes of their own only; remove the "
                f"parameter '{ISOLATION}'"
            )
            raise UnsupportedError(msg)
        return True
    if choice is not None:
        return choice == "process"
    if name == PYTHON:
        return True
    default = DEFAULTS.get(name)
    return default is not None and default(source)
