"""A small model that proposes tokens, which the large one checks several at a time (speculative decoding)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from halimede.backends.parameters import integer_parameter, text_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, NotFoundError

DRAFT_MODEL: Final = "draft_model"
DRAFT_TOKENS: Final = "num_assistant_tokens"


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model.

    Attributes:
        directory: where its files are.
        tokens: how many tokens it proposes at a time.
    """

    directory: Path
    tokens: int


def read_draft(config: ModelConfig, version: Path) -> Draft | None:
    """The draft model that a configuration names, None for none.

    Args:
        config: the configuration.
        version: the directory of the version.

    Raises:
        InvalidArgumentError: a parameter has no such value.
        NotFoundError: there is no such model.
    """
    named = text_parameter(config, DRAFT_MODEL)
    tokens = integer_parameter(config, DRAFT_TOKENS, 1)
    if not named:
        if tokens is not None:
            msg = f"model '{config.name}': parameter '{DRAFT_TOKENS}' needs the parameter '{DRAFT_MODEL}' beside it"
            raise InvalidArgumentError(msg)
        return None
    directory = Path(os.path.normpath(version / named))
    if not directory.is_relative_to(version.parent):
        msg = (
            f"model '{config.name}': parameter '{DRAFT_MODEL}' is '{named}', which is outside of the model's "
            f"directory; it must be relative to the version's directory"
        )
        raise InvalidArgumentError(msg)
    path = directory / "openvino_model.xml"
    if not path.is_file():
        msg = f"model '{config.name}': parameter '{DRAFT_MODEL}' is '{named}', but there is no file '{path}'"
        raise NotFoundError(msg)
    return Draft(directory, tokens or 5)
