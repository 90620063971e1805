"""What lies beside a model for texts: its chat template, and its tokenizer."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.frontends.openai.chat_template import ChatTemplate
from halimede.frontends.openai.text_tokenizer import TextTokenizer

logger = logging.getLogger("halimede")

_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE: Final = "chat_template.jinja"
_TOKENIZER: Final = "tokenizer.json"
_ENGINE: Final = "model.json"
_OTHERS: Final = "additional_chat_templates"
_SPECIAL_MAP: Final = "special_tokens_map.json"
_DEFAULT: Final = "default"
_WITH_TOOLS: Final = "tool_use"
_MODEL_CONFIG: Final = "config.json"
_OF_TEXTS: Final = "text_config"
_CONTEXT: Final = "max_model_len"
_CONTEXT_NAMES: Final = ("max_position_embeddings", "n_positions")
_MAX_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class TextFiles:
    """What was found.

    Attributes:
        template: makes prompts of conversations; None without one.
        tool_template: the same of conversations with tools; None if there is no other one for them.
        problem: why there is none.
        tokenizer: of the model; None without one.
    """

    template: ChatTemplate | None
    problem: HalimedeError | None
    tokenizer: TextTokenizer | None
    tool_template: ChatTemplate | None = None


def read_text_files(directory: Path, version: int, named: str) -> TextFiles:
    """What lies beside a model. Blocks.

    Args:
        directory: the model's.
        version: the version.
        named: the tokenizer's directory, relative to the model's; "" for the usual places.
    """
    try:
        places = [_named(directory, named)] if named else list(_places(directory, version))
    except HalimedeError as error:
        return TextFiles(None, error, None)
    templates: dict[str, ChatTemplate] = {}
    problem: HalimedeError | None = None
    try:
        templates = _read_templates(places)
        if _DEFAULT not in templates:
            msg = (
                f"its chat templates have the names {', '.join(sorted(templates))}, and none is '{_DEFAULT}'"
            )
            problem = InvalidArgumentError(msg)
    except HalimedeError as error:
        problem = error
    return TextFiles(templates.get(_DEFAULT), problem, _read_tokenizer(places), templates.get(_WITH_TOOLS))


def _named(directory: Path, named: str) -> Path:
    """The directory that a parameter names, which must be in the model's repository."""
    place = Path(os.path.normpath(directory / named))
    if not place.is_relative_to(directory.parent):
        raise InvalidArgumentError(f"openai.tokenizer is '{named}', which is outside of the model repository")
    if not place.is_dir():
        raise InvalidArgumentError(f"openai.tokenizer is '{named}', but there is no directory '{place}'")
    return place


def _places(directory: Path, version: int) -> Iterator[Path]:
    """Where files may be: with the version, with the model, and where the engine arguments of vLLM point."""
    yield directory / str(version)
    yield directory
    arguments = _read_json(directory / str(version) / _ENGINE)
    for key in ("tokenizer", "model"):
        place = arguments.get(key)
        if isinstance(place, str) and Path(place).is_dir():
            yield Path(place)


def _read_json(path: Path) -> Mapping[str, Any]:
    """The object in a file, {} without the file."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"cannot read '{path}': {error}") from None
    return document if isinstance(document, dict) else {}


def _read_templates(places: list[Path]) -> dict[str, ChatTemplate]:
    """Name → template, of the first place that has one."""
    for place in places:
        config = _read_json(place / _CONFIG)
        named = _named_templates(place) or _listed_templates(config)
        if named:
            special = _special_tokens(place, config)
            return {name: ChatTemplate(source, special) for name, source in named.items()}
    looked = ", ".join(f"'{place}'" for place in places)
    raise InvalidArgumentError(f"no chat template: neither {_CONFIG} nor {_TEMPLATE} has one in {looked}")


def _named_templates(place: Path) -> dict[str, str]:
    """Name → template, of the files for them."""
    files = {path.stem: path for path in (place / _OTHERS).glob("*.jinja")}
    if (place / _TEMPLATE).is_file():
        files[_DEFAULT] = place / _TEMPLATE
    try:
        return {name: path.read_text("utf-8") for name, path in files.items()}
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"cannot read the chat templates in '{place}': {error}") from None


def _listed_templates(config: Mapping[str, Any]) -> dict[str, str]:
    """Name → template, of what the configuration of the tokenizer has: one, or several by name."""
    source = config.get("chat_template")
    if isinstance(source, list):
        source = {each.get("name"): each.get("template") for each in source if isinstance(each, dict)}
    named = source if isinstance(source, dict) else {_DEFAULT: source}
    return {name: each for name, each in named.items() if isinstance(name, str) and isinstance(each, str)}


def _special_tokens(place: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens that templates may name, such as ``bos_token`` and ``image_token``."""
    known = dict(config)
    if "added_tokens_decoder" not in config:  # as older versions have it
        known |= _read_json(place / _SPECIAL_MAP)
    found = {name: value for name, value in known.items() if name.endswith("_token")}
    if isinstance(extra := known.get("extra_special_tokens"), dict):
        found |= extra
    tokens = {
        name: value.get("content") if isinstance(value, dict) else value for name, value in found.items()
    }
    return {name: token for name, token in tokens.items() if isinstance(token, str)}


def _read_tokenizer(places: list[Path]) -> TextTokenizer | None:
    path = next((place / _TOKENIZER for place in places if (place / _TOKENIZER).is_file()), None)
    if path is None:
        return None
    try:
        return TextTokenizer(path)
    except ImportError:
        logger.warning("OpenAI: '%s' is not used: pip install 'halimede[openai]' to count tokens", path)
    except InvalidArgumentError as error:
        logger.warning("OpenAI: tokens cannot be counted: %s", error.message)
    return None


def read_context(directory: Path, version: int, named: str, config: ModelConfig) -> int | None:
    """How many tokens prompt and answer of a model may have together; None if neither its parameters nor its files say.

    Blocks.

    Args:
        directory: the model's.
        version: the version.
        named: as of `read_text_files`.
        config: its configuration, complete.
    """
    told = config.parameters[_CONTEXT].string_value if _CONTEXT in config.parameters else ""
    if told.isascii() and told.isdigit() and len(told) <= _MAX_DIGITS:
        return int(told) or None
    try:
        places = list(_places(directory, version))
        if named:
            places.insert(0, _named(directory, named))
        arguments = _read_json(directory / str(version) / _ENGINE)
        documents = [_read_json(place / _MODEL_CONFIG) for place in places]
    except HalimedeError:
        return None
    texts = [document.get(_OF_TEXTS) for document in documents]
    found = [arguments.get(_CONTEXT)] + [
        document.get(name)
        for document in (*documents, *texts)
        if isinstance(document, dict)
        for name in _CONTEXT_NAMES
    ]
    return next((each for each in found if type(each) is int and each > 0), None)
