"""The prompt that a conversation becomes: a Jinja template that the model's author wrote, run in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from halimede.core.errors import InvalidArgumentError, UnsupportedError

MISSING = "chat templates need the package jinja2: pip install 'halimede[openai]'"


class ChatTemplate:
    """A template, compiled.

    Args:
        source: its text.
        special: the special tokens that it may name, such as `bos_token`.

    Raises:
        UnsupportedError: the package is not installed.
        InvalidArgumentError: it is not a template.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise UnsupportedError(MISSING) from None
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        self._special = dict(special)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise InvalidArgumentError(f"the chat template is malformed: {error}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None = None) -> str:
        """The prompt after which the assistant's turn begins.

        Raises:
            InvalidArgumentError: the template refuses the conversation, or fails.
        """
        try:
            return self._template.render(
                **self._special, messages=messages, tools=tools, add_generation_prompt=True
            )
        except InvalidArgumentError:
            raise
        except Exception as error:  # templates are programs
            raise InvalidArgumentError(f"the chat template failed: {error}") from None


def _refuse(message: object) -> str:
    raise InvalidArgumentError(f"the chat template refuses the messages: {message}")


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
