"""Log probabilities of tokens, in the forms in which clients expect them."""

from codecs import getincrementaldecoder
from collections.abc import Callable, ItemsView, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from halimede.core.errors import InvalidArgumentError

MAX_TOP: Final = 20
"""The most alternatives of a token."""

_SKIPPED: Final = 8
"""Characters of a prompt that may stand between two tokens, as some tokenizers leave out spaces."""

Piece = Callable[[int], bytes]
"""``piece(token)`` gives the bytes of a token; those of a special one are its name."""


class LogprobForm(Enum):
    """How log probabilities are told."""

    VLLM = "vllm"
    """A list with an object for each token: token id → logprob, rank and text, as Triton's vLLM backend has it."""
    CHAT = "chat"
    """As OpenAI's chat completions have it."""
    COMPLETIONS = "completions"
    """As OpenAI's completions have it."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How probable a token was, by the logits of the model before penalties and temperature.

    Attributes:
        logprob: of the token, the natural logarithm.
        rank: its place among all tokens, from 1; None if it is not known.
        top: the most probable tokens and their log probabilities, in descending order.
    """

    logprob: float
    rank: int | None = None
    top: tuple[tuple[int, float], ...] = ()


class TokenRecord(NamedTuple):
    """A token of a text, and how probable it was.

    Attributes:
        token: its id.
        offset: where in the text it begins, in characters.
        ends: it ends the text and is not part of it.
        logprob: how probable it was.
    """

    token: int
    offset: int
    ends: bool
    logprob: TokenLogprob


def read_openai_logprobs(logprobs: Any, top_logprobs: Any) -> tuple[LogprobForm, int] | None:
    """What OpenAI's fields ask for: the form, and how many alternatives; None for no log probabilities.

    Args:
        logprobs: true or false for chat; the number of alternatives for completions; None without the field.
        top_logprobs: the number of alternatives for chat; None without the field.

    Raises:
        InvalidArgumentError: a value is impossible.
    """
    if logprobs is None or logprobs is False:
        if top_logprobs is not None:
            raise InvalidArgumentError("'top_logprobs' needs 'logprobs': true beside it")
        return None
    if logprobs is True:
        return LogprobForm.CHAT, read_count("top_logprobs", 0 if top_logprobs is None else top_logprobs)
    if top_logprobs is not None:
        raise InvalidArgumentError(f"'top_logprobs' needs 'logprobs': true beside it, got {logprobs!r:.64}")
    return LogprobForm.COMPLETIONS, read_count("logprobs", logprobs)


def read_count(name: str, value: Any) -> int:
    """A number of alternatives.

    Raises:
        InvalidArgumentError: it is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOP:
        raise InvalidArgumentError(f"'{name}' must be a whole number from 0 to {MAX_TOP}, got {value!r:.64}")
    return value


def logprobs_document(
    form: LogprobForm, records: Sequence[TokenRecord], piece: Piece, *, ends: bool = False
) -> Any:
    """The log probabilities of some tokens as JSON.

    Args:
        form: how they are told.
        records: the tokens.
        piece: gives the bytes of a token.
        ends: the token that ends the text is told in each form.
    """
    if form is LogprobForm.VLLM:
        return [_vllm_entry(record, piece) for record in records]
    shown = [record for record in records if ends or not record.ends]
    if form is LogprobForm.CHAT:
        return {"content": [_chat_entry(record, piece) for record in shown], "refusal": None}
    return {
        "tokens": [_text(piece(record.token)) for record in shown],
        "token_logprobs": [record.logprob.logprob for record in shown],
        "top_logprobs": [
            {_text(piece(token)): logprob for token, logprob in _with_chosen(record)} for record in shown
        ],
        "text_offset": [record.offset for record in shown],
    }


def prompt_document(
    form: LogprobForm,
    prompt: Sequence[int],
    logprobs: Sequence[TokenLogprob | None],
    piece: Piece,
    text: str = "",
) -> Any:
    """The log probabilities of a prompt's tokens as JSON, in the form of completions or of vLLM. The first has none.

    Args:
        form: one of the two.
        prompt: the tokens.
        logprobs: of each.
        piece: gives the bytes of a token.
        text: of the prompt, which need not have the special tokens.
    """
    decoder = getincrementaldecoder("utf-8")("replace")
    texts, offsets, offset = [], [], 0
    for token in prompt:
        data = piece(token)
        texts.append(_text(data))
        part = decoder.decode(data)
        place = text.find(part, offset, offset + len(part) + _SKIPPED)
        offset = max(place, offset)
        offsets.append(offset)
        offset += len(part) * (place >= 0)
    records = [
        None if logprob is None else TokenRecord(token, place, False, logprob)
        for token, place, logprob in zip(prompt, offsets, logprobs, strict=True)
    ]
    if form is LogprobForm.VLLM:
        return [None if record is None else _vllm_entry(record, piece) for record in records]
    return {
        "tokens": texts,
        "token_logprobs": [None if record is None else record.logprob.logprob for record in records],
        "top_logprobs": [
            None
            if record is None
            else {_text(piece(token)): logprob for token, logprob in _with_chosen(record)}
            for record in records
        ],
        "text_offset": offsets,
    }


def _vllm_entry(record: TokenRecord, piece: Piece) -> Mapping[str, Any]:
    ranks = {token: rank for rank, (token, _) in enumerate(record.logprob.top, 1)}
    ranks[record.token] = record.logprob.rank or ranks.get(record.token, 0)
    return {
        str(token): {
            "logprob": logprob,
            "rank": ranks[token] or None,
            "decoded_token": _text(piece(token)),
        }
        for token, logprob in _with_chosen(record)
    }


def _chat_entry(record: TokenRecord, piece: Piece) -> dict[str, Any]:
    top = [_chat_token(piece(token), logprob) for token, logprob in record.logprob.top]
    return {**_chat_token(piece(record.token), record.logprob.logprob), "top_logprobs": top}


def _chat_token(text: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _text(text), "logprob": logprob, "bytes": list(text)}


def _with_chosen(record: TokenRecord) -> ItemsView[int, float]:
    """The chosen token first, and the most probable ones."""
    return {record.token: record.logprob.logprob, **dict(record.logprob.top)}.items()


def _text(piece: bytes) -> str:
    """The text of a token; bytes that are no whole characters as escapes."""
    return piece.decode("utf-8", "backslashreplace")
