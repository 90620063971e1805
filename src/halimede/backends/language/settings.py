"""Settings that all language models have, as parameters of their configuration; the names are vLLM's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from halimede.backends.language.sampling import Sampling, choose_known
from halimede.backends.language.tools.formats import ToolFormat, detect_format
from halimede.backends.language.tools.tool_use import PARSER
from halimede.backends.parameters import choice_parameter, integer_parameter
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError

MAX_TEXTS: Final = "max_num_seqs"
MAX_CONTEXT: Final = "max_model_len"
STEP_TOKENS: Final = "max_num_batched_tokens"

_DEFAULTS: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What `generation_config.json` may say of sampling."""


@dataclass(frozen=True, slots=True)
class LanguageSettings:
    """How texts are written.

    Attributes:
        max_texts: so many are written at once; others wait in the model's queue.
        max_context: the most tokens of prompt and text together; None for what the model can do.
        step_tokens: tokens of prompts that one step reads at the most.
        tool_format: how the model writes calls of tools; None for what its chat template tells.
    """

    max_texts: int
    max_context: int | None
    step_tokens: int
    tool_format: ToolFormat | None

    @classmethod
    def of(cls, config: ModelConfig) -> "LanguageSettings":
        """The settings of a configuration.

        Raises:
            InvalidArgumentError: a parameter has no such value.
        """
        named = choice_parameter(config, PARSER, {each.value: each.value for each in ToolFormat})
        return cls(
            max_texts=integer_parameter(config, MAX_TEXTS, 1) or 16,
            max_context=integer_parameter(config, MAX_CONTEXT, 2),
            step_tokens=integer_parameter(config, STEP_TOKENS, 1) or 512,
            tool_format=ToolFormat(named) if named else None,
        )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model; {} without the file.

    Raises:
        InvalidArgumentError: it has something else.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"cannot read '{path}': {error}") from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"'{path}' must be a JSON object")
    return document


def read_generation_config(directory: Path) -> tuple[Sampling, frozenset[int]]:
    """How tokens are chosen if a request does not say, and which tokens end a text, by `generation_config.json`.

    Without the file: with temperature 1, and none.

    Raises:
        InvalidArgumentError: the file has something else.
    """
    path = directory / "generation_config.json"
    document = read_object(path)
    try:
        return choose_defaults(document), end_tokens(document.get("eos_token_id"))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"'{path}': {error.message}") from None


def choose_defaults(document: Mapping[str, Any]) -> Sampling:
    """How tokens are chosen if a request does not say, of what a generation_config.json says.

    Raises:
        InvalidArgumentError: a field has a value that it cannot have.
    """
    return choose_known({name: value for name, value in document.items() if name in _DEFAULTS}, Sampling())


def end_tokens(value: Any) -> frozenset[int]:
    """The tokens that `eos_token_id` of a file names: a number, several, or null."""
    return frozenset(value if isinstance(value, list) else () if value is None else (value,))


def context_of(config: ModelConfig, settings: LanguageSettings, told: int | None) -> int:
    """How many tokens prompt and text may have together.

    Args:
        config: the configuration.
        settings: of the model.
        told: what the model can do, None if its files do not say.

    Raises:
        InvalidArgumentError: neither says it, or the parameter is more than the model can do.
    """
    wanted = settings.max_context
    if wanted is None:
        if told is None:
            msg = (
                f"model '{config.name}': config.json has no max_position_embeddings; set the parameter "
                f"'{MAX_CONTEXT}' to the number of tokens that prompt and answer may have together"
            )
            raise InvalidArgumentError(msg)
        return told
    if told is not None and wanted > told:
        msg = (
            f"model '{config.name}': parameter '{MAX_CONTEXT}' is {wanted}, but the model's context holds {told} "
            f"tokens"
        )
        raise InvalidArgumentError(msg)
    return wanted


def tool_format_of(settings: LanguageSettings, directory: Path) -> ToolFormat | None:
    """How the model writes calls of tools, None if that is not known.

    Args:
        settings: of the model.
        directory: its version's.

    Raises:
        InvalidArgumentError: its files cannot be read.
    """
    return settings.tool_format or detect_format(directory, directory.parent)
