"""vLLM's calls for tokens: those of a prompt or a conversation, and the text of tokens."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from halimede.backends.language.tokenizer import PromptLimit
from halimede.core.errors import InvalidArgumentError
from halimede.frontends.openai import fields
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.messages import read_messages
from halimede.frontends.openai.model_errors import client_error
from halimede.frontends.openai.published_fields import check_fields
from halimede.frontends.openai.routes import Call
from halimede.frontends.openai.template_limits import ON_LOOP, TemplateLimits, TooSlowForLoopError
from halimede.frontends.openai.text_request import render_prompt
from halimede.frontends.openai.text_tokenizer import LONG, TextTokenizer

TOKEN_THREADS: Final = ThreadPoolExecutor(2, "halimede-tokens")
"""Where long texts become tokens, so that neither the server's loop nor chats wait."""

_MOST_CHARACTERS: Final = 1 << 20
"""Of a text for a model whose context is not known."""

_OF_CHATS: Final = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools")


def tokenize(
    document: dict[str, Any], known: KnownModel, ignored: IgnoredFields, limits: TemplateLimits
) -> bytes:
    """The answer to a request for the tokens of a prompt or of a conversation.

    Args:
        document: the request.
        known: the model.
        ignored: hears of fields that nobody publishes.
        limits: what the chat template may take.

    Raises:
        TooSlowForLoopError: it takes more than the limits `ON_LOOP`, which were given.
        HalimedeError: what is wrong with it, or what the model cannot do.
    """
    check_fields(document, Call.TOKENIZE, (), ignored)
    tokenizer = _tokenizer_of(known)
    chat = document.get("messages") is not None
    source = "messages" if chat else "prompt"
    text = _conversation(document, known, limits) if chat else _prompt(document)
    special = (
        not chat
        if document.get("add_special_tokens") is None
        else fields.flag(document, "add_special_tokens")
    )
    named = fields.flag(document, "return_token_strs")
    _check_length(text, source, tokenizer, known)
    if limits is ON_LOOP and len(text) > LONG:
        raise TooSlowForLoopError
    try:
        tokens = tokenizer.encode(text, special=special)
    except InvalidArgumentError as error:
        raise FieldError(source, error.message) from None
    answer = {
        "count": len(tokens),
        "max_model_len": known.context,
        "tokens": tokens,
        "token_strs": tokenizer.names(tokens) if named else None,
    }
    return orjson.dumps(answer)


def detokenize(
    document: dict[str, Any], known: KnownModel, ignored: IgnoredFields, limits: TemplateLimits
) -> bytes:
    """The answer to a request for the text of tokens. Arguments and errors are as of `tokenize`."""
    check_fields(document, Call.DETOKENIZE, (), ignored)
    tokenizer = _tokenizer_of(known)
    tokens = fields.token_ids(document, "tokens")
    if limits is ON_LOOP and len(tokens) > LONG:
        raise TooSlowForLoopError
    try:
        return orjson.dumps({"prompt": tokenizer.decode(tokens)})
    except InvalidArgumentError as error:
        raise FieldError("tokens", error.message) from None


def _tokenizer_of(known: KnownModel) -> TextTokenizer:
    if known.files.tokenizer is None:
        msg = f"model '{known.model.name}' has no tokenizer.json that the server can read"
        raise FieldError("model", msg, "model_not_supported")
    return known.files.tokenizer


def _conversation(document: dict[str, Any], known: KnownModel, limits: TemplateLimits) -> str:
    if document.get("prompt") is not None:
        raise FieldError("prompt", "'prompt' and 'messages' cannot both be given")
    messages = read_messages(document["messages"], raw=False)
    if not isinstance(document.get("tools"), list | None):
        raise FieldError("tools", "'tools' must be a list")
    return render_prompt(document, messages, known, limits)


def _prompt(document: dict[str, Any]) -> str:
    for name in _OF_CHATS:
        if document.get(name) is not None:
            raise FieldError(name, f"'{name}' needs 'messages'", "unsupported_parameter")
    prompt = document.get("prompt")
    if not isinstance(prompt, str):
        raise FieldError("prompt", "'prompt' must be a string, unless there are 'messages'")
    return fields.checked_text("prompt", prompt)


def _check_length(text: str, source: str, tokenizer: TextTokenizer, known: KnownModel) -> None:
    """Refuse texts that no prompt of the model can be as long as, by the rule that its backend has for prompts.

    Raises:
        FieldError: this is such a text.
    """
    if known.context is None:
        if len(text) > _MOST_CHARACTERS:
            msg = f"'{source}' has {len(text)} characters; at most {_MOST_CHARACTERS} are allowed"
            raise FieldError(source, msg)
        return
    try:
        PromptLimit(known.context, tokenizer.max_characters).check(text, f"'{source}'")
    except InvalidArgumentError as error:
        raise client_error(error, source, {}) from None
