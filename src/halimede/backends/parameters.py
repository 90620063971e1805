"""Model parameters (`parameters` in `config.pbtxt`), which are text, as the values that they stand for."""

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError


def text_parameter(config: ModelConfig, key: str) -> str | None:
    """The parameter's text without surrounding blanks, or None if it is not set."""
    return config.parameters[key].string_value.strip() if key in config.parameters else None


def integer_parameter(config: ModelConfig, key: str, minimum: int = 0) -> int | None:
    """The parameter as a whole number, or None if it is not set.

    Raises:
        InvalidArgumentError: it is no number, or below `minimum`.
    """
    text = text_parameter(config, key)
    return None if text is None else parse_integer(f"{_where(config)} parameter '{key}'", text, minimum)


def choice_parameter(config: ModelConfig, key: str, choices: dict[str, str]) -> str | None:
    """What the parameter's text stands for in `choices`, or None if it is not set.

    Raises:
        InvalidArgumentError: it is none of the choices.
    """
    text = text_parameter(config, key)
    if text is None:
        return None
    if text not in choices:
        words = ", ".join(
            f"'{choice}'" if word == choice else f"'{choice}' ({word})" for choice, word in choices.items()
        )
        msg = f"{_where(config)} parameter '{key}' must be one of {words}, got '{text}'"
        raise InvalidArgumentError(msg)
    return choices[text]


def parse_integer(what: str, text: str, minimum: int = 0) -> int:
    """The text as a whole number; `what` names the setting in errors.

    Raises:
        InvalidArgumentError: it is no number, or below `minimum`.
    """
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise InvalidArgumentError(f"{what} must be an integer of at least {minimum}, got '{text}'")
    return number


def _where(config: ModelConfig) -> str:
    return f"model '{config.name}':"
