"""Messages of conversations: each published member becomes part of the prompt, or is refused by name."""

from typing import Any

import pytest
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionFunctionMessageParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from typing_extensions import get_type_hints

from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.messages import conversation, read_messages

CALL = {"id": "1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
FORMS = {
    "assistant": ChatCompletionAssistantMessageParam,
    "developer": ChatCompletionDeveloperMessageParam,
    "function": ChatCompletionFunctionMessageParam,
    "system": ChatCompletionSystemMessageParam,
    "tool": ChatCompletionToolMessageParam,
    "user": ChatCompletionUserMessageParam,
}
FOR_TEMPLATES: dict[str, Any] = {
    "role": None, "content": "c", "name": "n", "refusal": "r", "tool_calls": [CALL], "tool_call_id": "1",
}  # fmt: skip
"""Members that templates get → a value."""
REFUSED: dict[str, Any] = {"audio": {"id": "a"}, "function_call": {"name": "time", "arguments": "{}"}}


def told(role: str, **members: Any) -> dict[str, Any]:
    """What a template gets of a message."""
    [message] = conversation(read_messages([{"role": role, **members}], raw=False))
    return message


@pytest.mark.parametrize("role", FORMS)
def test_published_members_reach_the_template_or_are_refused(role: str) -> None:
    published = get_type_hints(FORMS[role]).keys()
    assert published <= FOR_TEMPLATES.keys() | REFUSED.keys()
    for name in published & FOR_TEMPLATES.keys() - {"role"}:
        assert told(role, **{"content": "c", name: FOR_TEMPLATES[name]})[name] == FOR_TEMPLATES[name]
    for name in published & REFUSED.keys():
        with pytest.raises(FieldError) as caught:
            told(role, content="c", **{name: REFUSED[name]})
        assert caught.value.field == f"messages[0].{name}"
        told(role, content="c", **{name: None})


@pytest.mark.parametrize("content", [None, "", []])
def test_a_refusal_is_what_an_assistant_has_said(content: Any) -> None:
    assert told("assistant", content=content, refusal="never")["content"] == "never"
    assert told("assistant", content="yes", refusal="never")["content"] == "yes"
    assert told("assistant", content="", refusal=None)["content"] == ""


@pytest.mark.parametrize(
    ("role", "members", "place"),
    [
        ("assistant", {"refusal": 3}, "refusal"),
        ("assistant", {"tool_calls": "x"}, "tool_calls"),
        ("assistant", {"tool_calls": [3]}, "tool_calls[0]"),
        ("assistant", {"tool_calls": [CALL, {}]}, "tool_calls[1]"),
        ("assistant", {"tool_calls": [{"type": "custom", "custom": {"name": "x"}}]}, "tool_calls[0]"),
        ("assistant", {"tool_calls": [{"function": {"name": 3}}]}, "tool_calls[0]"),
        ("tool", {"content": None}, "content"),
        ("user", {"content": None}, "content"),
    ],
)
def test_malformed_members_are_refused(role: str, members: dict[str, Any], place: str) -> None:
    with pytest.raises(FieldError) as caught:
        told(role, **members)
    assert caught.value.field == f"messages[0].{place}"
    assert f"'messages[0].{place}'" in caught.value.message


@pytest.mark.parametrize("role", ["assistant", "function"])
def test_some_messages_need_no_content(role: str) -> None:
    assert told(role, content=None)["content"] is None
    assert told(role, tool_calls=[CALL])["tool_calls"] == [CALL]
    assert told(role, tool_calls=[])["tool_calls"] == []
