"""Bodies that OpenAI's published schema allows.

The official client's types are generated from that schema, so strategies are made of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from hypothesis import strategies as st
from openai._types import SequenceNotStr
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat import completion_create_params as chat
from openai.types.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses import (
    EasyInputMessageParam,
    FunctionToolParam,
    ResponseFunctionToolCallParam,
    ResponseInputParam,
    ResponseInputTextParam,
    ResponseOutputMessageParam,
)
from openai.types.responses import response_create_params as responses
from openai.types.responses.response_input_param import FunctionCallOutput, Message
from typing_extensions import get_type_hints, is_typeddict

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="ei"), max_size=8)
"""Text that contains no word by which the model `writer` is told to do something special."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
_SIMPLE: Mapping[Any, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(0, 200),
    float: st.floats(-2, 2),
    str: TEXT,
    object: JSON,
}
_REQUIRED: tuple[Any, ...] = (Required,)
_LISTS = (list, Iterable, Sequence, SequenceNotStr)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of JSON that have a type."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if is_typeddict(hint):
        return _objects_of(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Required, NotRequired, Annotated):
        return values_of(arguments[0])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([values_of(each) for each in arguments])
    if origin in _LISTS:
        return st.lists(values_of(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXT, values_of(arguments[1]), max_size=2)
    raise TypeError(f"there is no strategy for {hint!r}")


@cache
def _objects_of(form: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.deferred(lambda: _members_of(form))


def _members_of(form: Any, **chosen: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the required members of a type, and some of the others; `chosen` are as they are here."""
    hints = get_type_hints(form, include_extras=True)
    required = {
        name: values_of(hint) for name, hint in hints.items() if get_origin(hint) in _REQUIRED
    } | chosen
    others = sorted(hints.keys() - required.keys())

    def with_some(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(required | {name: values_of(hints[name]) for name in names})

    if not others:
        return st.fixed_dictionaries(required)
    return st.lists(st.sampled_from(others), max_size=3, unique=True).flatmap(with_some)


_SERVED_ITEMS = st.lists(
    st.one_of(
        values_of(Message),
        values_of(EasyInputMessageParam),
        values_of(ResponseOutputMessageParam),
        values_of(ResponseFunctionToolCallParam),
        values_of(FunctionCallOutput),
    ),
    min_size=1,
    max_size=4,
)
_TEXT_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(("user", "assistant", "system", "developer")),
            "content": TEXT | st.lists(values_of(ResponseInputTextParam), max_size=2),
        }
    ),
    min_size=1,
    max_size=3,
)
_INPUTS = TEXT | _TEXT_MESSAGES | _SERVED_ITEMS | values_of(ResponseInputParam)
_FUNCTIONS = st.lists(values_of(FunctionToolParam), max_size=2)
_MESSAGES = st.lists(values_of(ChatCompletionMessageParam), min_size=1, max_size=3)
_CHATTERS = st.sampled_from(("tools", "writer"))
_COMPLETERS = st.sampled_from(("writer", "plain"))
_EMBEDDERS = st.sampled_from(("squash", "embedder"))
_TEXTS = TEXT | st.lists(TEXT, min_size=1, max_size=3)

BODIES: Mapping[str, st.SearchStrategy[dict[str, Any]]] = {
    "chat/completions": st.one_of(
        _members_of(chat.CompletionCreateParamsNonStreaming, model=_CHATTERS, messages=_MESSAGES),
        _members_of(chat.CompletionCreateParamsStreaming, model=_CHATTERS, messages=_MESSAGES),
    ),
    "completions": st.one_of(
        _members_of(CompletionCreateParamsNonStreaming, model=_COMPLETERS),
        _members_of(CompletionCreateParamsNonStreaming, model=_COMPLETERS, prompt=_TEXTS),
        _members_of(CompletionCreateParamsStreaming, model=_COMPLETERS, prompt=_TEXTS),
    ),
    "embeddings": st.one_of(
        _members_of(EmbeddingCreateParams, model=_EMBEDDERS),
        _members_of(EmbeddingCreateParams, model=_EMBEDDERS, input=_TEXTS),
    ),
    "responses": st.one_of(
        _members_of(responses.ResponseCreateParamsNonStreaming, model=_CHATTERS, input=_INPUTS),
        _members_of(responses.ResponseCreateParamsStreaming, model=_CHATTERS, input=_INPUTS),
        _members_of(
            responses.ResponseCreateParamsNonStreaming,
            model=_CHATTERS,
            input=_TEXT_MESSAGES,
            tools=_FUNCTIONS,
        ),
    ),
}
"""Path of a call → bodies of it."""
