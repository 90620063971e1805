"""The fields of a request for chat that are for the chat template."""

from typing import Any, Final

from halimede.frontends.openai import fields
from halimede.frontends.openai.chat_template import ChatTemplate, TemplateOptions
from halimede.frontends.openai.errors import FieldError

_RESERVED: Final = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize")
)  # fmt: skip
"""Variables that fields of the request are for."""


def read_template_options(document: dict[str, Any], template: ChatTemplate) -> TemplateOptions:
    """What a request says to the template besides messages and tools.

    Raises:
        FieldError: a field is wrong, or the template makes nothing of it.
    """
    variables = document.get("chat_template_kwargs") or {}
    if not isinstance(variables, dict):
        raise FieldError("chat_template_kwargs", "'chat_template_kwargs' must be an object")
    for name in variables:
        if name in _RESERVED:
            msg = f"'chat_template_kwargs' cannot have '{name}'"
            raise FieldError("chat_template_kwargs", msg)
    effort = document.get("reasoning_effort")
    if effort is not None:
        if not isinstance(effort, str):
            raise FieldError("reasoning_effort", "'reasoning_effort' must be a string")
        _refuse_unused("reasoning_effort", template)
        variables = {"reasoning_effort": effort, **variables}
    documents = document.get("documents") or None
    if documents is not None:
        if not isinstance(documents, list) or not all(isinstance(each, dict) for each in documents):
            raise FieldError("documents", "'documents' must be a list of objects")
        _refuse_unused("documents", template)
    goes_on = fields.flag(document, "continue_final_message")
    if goes_on and document.get("add_generation_prompt"):
        msg = "'continue_final_message' and 'add_generation_prompt' cannot both be true"
        raise FieldError("continue_final_message", msg)
    begins = not goes_on and (
        document.get("add_generation_prompt") is None or fields.flag(document, "add_generation_prompt")
    )
    return TemplateOptions(
        add_generation_prompt=begins,
        continue_final_message=goes_on,
        documents=documents,
        variables=variables,
    )


def _refuse_unused(name: str, template: ChatTemplate) -> None:
    if name not in template.variables:
        msg = f"the chat template of the model does not use '{name}'"
        raise FieldError(name, msg, "unsupported_parameter")
