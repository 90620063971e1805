"""The prompt that a conversation becomes: a Jinja template that the model's author wrote, run in a sandbox.

Templates are written for `apply_chat_template` of transformers. Here they get the same variables, filters and tags, so
that the prompt is the same, byte for byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, Final

from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.frontends.openai.template_limits import ON_LOOP, USUAL, TemplateLimits

MISSING: Final = "chat templates need the package jinja2: pip install 'halimede[openai]'"

_REASONING: Final = ("reasoning_content", "thinking", "reasoning")
"""What messages may call the reasoning; the first is the usual name, and the second what gpt-oss looks for."""

_SHOWN: Final = 1000
"""So much of what goes wrong in a template is told."""

_MARK: Final = "HALIMEDE_THE_TEXT_GOES_ON_HERE"
_END: Final = _MARK + " "
"""Where a message is to be continued. If a template takes its space away, it takes those of the message, too."""


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """What a template is told besides messages and tools.

    Attributes:
        add_generation_prompt: the prompt ends with the beginning of the assistant's turn.
        continue_final_message: the prompt ends within the last message, which the model continues.
        documents: texts to answer from; None for none.
        variables: further variables of the template.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    documents: list[Any] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


_USUAL: Final = TemplateOptions()


class ChatTemplate:
    """A template, compiled.

    Attributes:
        variables: the names that it uses and does not set itself.
        loops_over_content: it goes through the parts that a message's content may consist of.
        names_developer: it has a text for the role `developer`.
        slow: the last rendering took so long that the server's loop had better not wait for the next one.

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

            from halimede.frontends.openai.template_environment import Compiled
        except ImportError:
            raise UnsupportedError(MISSING) from None
        self._special = dict(special)
        self.slow = False
        self._names_content = "content" in source
        self.names_developer = "developer" in source
        try:
            self._compiled = Compiled(source)
        except TemplateError as error:
            raise InvalidArgumentError(f"the chat template is malformed: {error}") from None
        except (RecursionError, SyntaxError, ValueError) as error:  # of what it is compiled to
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise InvalidArgumentError(f"the chat template is too complex: {reason}") from None
        self.variables = self._compiled.variables
        self.loops_over_content = self._compiled.loops_over_content

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[Any] | None = None,
        options: TemplateOptions = _USUAL,
        limits: TemplateLimits = USUAL,
    ) -> str:
        """The prompt.

        Args:
            messages: the conversation.
            tools: the tools that the model may call; None for none.
            options: what the template is told besides.
            limits: what it may take.

        Raises:
            TemplateLimitError: it takes more.
            InvalidArgumentError: the template refuses the conversation, or fails, or leaves the message out that is
                to be continued.
        """
        told = [_told(message) for message in messages]
        if options.continue_final_message and not self._names_content:
            raise InvalidArgumentError(
                "the chat template leaves out what messages say, so none can be continued"
            )
        goes_on = _mark_end(told) if options.continue_final_message else None
        variables = {
            **self._special,
            **options.variables,
            "messages": told,
            "tools": tools,
            "documents": options.documents,
            "add_generation_prompt": options.add_generation_prompt,
        }
        began = thread_time()
        try:
            prompt = self._compiled.render(variables, limits)
        except InvalidArgumentError:
            raise
        except Exception as error:  # templates are programs
            raise InvalidArgumentError(f"the chat template failed: {str(error)[:_SHOWN]}") from None
        finally:
            self.slow = thread_time() - began > ON_LOOP.seconds / 2
        return prompt if goes_on is None else _up_to_end(prompt, goes_on)


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates see it: without members that are null, and with the reasoning under its usual names."""
    told = {name: value for name, value in message.items() if value is not None}
    reasoning = next((told[name] for name in _REASONING if name in told), None)
    return told if reasoning is None else {"thinking": reasoning, **told, "reasoning_content": reasoning}


def _mark_end(messages: list[dict[str, Any]]) -> str:
    """Mark the end of the last message's text, which is returned."""
    last = messages[-1]
    content = last.get("content")
    if isinstance(content, str):
        messages[-1] = {**last, "content": content + _END}
        return content
    parts = list(content) if isinstance(content, list) else []
    for place in reversed(range(len(parts))):
        if "text" in parts[place]:
            text: str = parts[place]["text"]
            parts[place] = {**parts[place], "text": text + _END}
            messages[-1] = {**last, "content": parts}
            return text
    raise InvalidArgumentError("the last message has no text to continue")


def _up_to_end(prompt: str, text: str) -> str:
    """The prompt up to the mark, in which the text of the last message has to be as it is."""
    place = prompt.find(_MARK)
    if place < 0 or prompt.count(_MARK) > 1 or text.strip() not in prompt:
        msg = (
            "the last message cannot be continued, as the chat template leaves it out, changes or repeats it"
        )
        raise InvalidArgumentError(msg)
    whole = prompt.startswith(_END, place)
    return prompt[:place] if whole else prompt[:place].rstrip()
