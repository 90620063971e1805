"""What lies beside a model for texts: its chat template, and its tokenizer."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.frontends.openai.chat_template import ChatTemplate

logger = logging.getLogger("halimede")

Count = Callable[[str, bool], int | None]
"""``count(text, special)`` gives the number of tokens, with those that the tokenizer itself adds if `special`.

None if the tokenizer fails on this text, which it logs.
"""

_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE: Final = "chat_template.jinja"
_TOKENIZER: Final = "tokenizer.json"
_ENGINE: Final = "model.json"
_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True)
class TextFiles:
    """What was found.

    Attributes:
        template: makes prompts of conversations; None without one.
        problem: why there is none.
        count: counts tokens; None without a tokenizer.
    """

    template: ChatTemplate | None
    problem: HalimedeError | None
    count: Count | None


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
    template, problem = None, None
    try:
        template = _read_template(places)
    except HalimedeError as error:
        problem = error
    return TextFiles(template, problem, _read_tokenizer(places))


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


def _read_template(places: list[Path]) -> ChatTemplate:
    for place in places:
        config = _read_json(place / _CONFIG)
        special = {name: _token(config[name]) for name in _SPECIAL if config.get(name)}
        if (place / _TEMPLATE).is_file():
            return ChatTemplate((place / _TEMPLATE).read_text("utf-8"), special)
        source = config.get("chat_template")
        if isinstance(source, list):  # several, by name
            named = {each.get("name"): each.get("template") for each in source if isinstance(each, dict)}
            source = named.get("default")
        if isinstance(source, str):
            return ChatTemplate(source, special)
    looked = ", ".join(f"'{place}'" for place in places)
    raise InvalidArgumentError(f"no chat template: neither {_CONFIG} nor {_TEMPLATE} has one in {looked}")


def _token(value: Any) -> str:
    """A special token, which is a string or an object with one."""
    return str(value.get("content", "")) if isinstance(value, dict) else str(value)


def _read_tokenizer(places: list[Path]) -> Count | None:
    path = next((place / _TOKENIZER for place in places if (place / _TOKENIZER).is_file()), None)
    if path is None:
        return None
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
    except ImportError:
        logger.warning("OpenAI: '%s' is not used: pip install 'halimede[openai]' to count tokens", path)
        return None
    except Exception as error:  # the package's errors have no type of their own
        logger.warning("OpenAI: '%s' cannot be used to count tokens: %s", path, error)
        return None

    def count(text: str, special: bool) -> int | None:
        try:
            return len(tokenizer.encode(text, add_special_tokens=special).ids)
        except Exception as error:
            logger.warning("OpenAI: '%s' fails to count the tokens of a text: %s", path, error)
            return None

    return count
