"""The arguments of vLLM's engine: the version's model.json, as Triton's vLLM backend has it."""

from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import vllm
from vllm import AsyncEngineArgs

from halimede.backends.language.settings import read_object
from halimede.core.errors import InvalidArgumentError, NotFoundError

ARGUMENTS_FILE: Final = "model.json"


def read_arguments(directory: Path) -> dict[str, Any]:
    """The arguments. Without "model", a directory that has config.json is the model itself.

    Raises:
        NotFoundError: there are neither arguments nor a model.
        InvalidArgumentError: the file has something else, or vLLM has no such argument.
    """
    path = directory / ARGUMENTS_FILE
    arguments = read_object(path)
    if "model" not in arguments:
        if not (directory / "config.json").is_file():
            msg = (
                f"'{path}' does not name the model"
                if path.is_file()
                else f"there is no file '{path}', which holds the arguments of vLLM's engine"
            )
            raise NotFoundError(f'{msg}: at least {{"model": "NAME OR DIRECTORY"}}')
        arguments["model"] = str(directory)
    known = {field.name for field in fields(AsyncEngineArgs)}
    for name in arguments:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            version = getattr(vllm, "__version__", "")
            msg = f"'{path}': the engine of vLLM {version} has no argument '{name}'{hint}"
            raise InvalidArgumentError(msg)
    return arguments
