"""Chat templates get tools, and calls with arguments that are objects."""

from typing import Any

import pytest

from halimede.frontends.openai.chat_template import ChatTemplate
from halimede.frontends.openai.tool_prompts import tools_for_template, with_read_calls

TOOLS = [{"type": "function", "function": {"name": "time"}}]
TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<{{ call.function.arguments.zone }}>{% endfor %};{% endfor %}"
)


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "time", "arguments": arguments}}


def test_a_template_gets_tools_and_the_calls_that_were_made() -> None:
    messages = with_read_calls(
        [
            {"role": "user", "content": "When?"},
            {"role": "assistant", "content": "", "tool_calls": [call('{"zone": "CET"}')]},
            {"role": "tool", "content": "noon", "tool_call_id": "1"},
        ]
    )
    template = ChatTemplate(TEMPLATE, {})
    assert template.render(messages, TOOLS) == "[time]user:When?;assistant:<CET>;tool:noon;"
    assert template.render(messages[:1]) == "user:When?;"


@pytest.mark.parametrize("odd", ["no call", {"function": "time"}, call({"zone": "CET"}), call("{")])
def test_calls_that_have_no_text_as_arguments_stay_as_they_are(odd: Any) -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [odd]}
    assert with_read_calls([message]) == [message]
    assert with_read_calls([{"role": "assistant", "tool_calls": 3}]) == [
        {"role": "assistant", "tool_calls": 3}
    ]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({}, None),
        ({"tools": []}, None),
        ({"tools": TOOLS, "tool_choice": "none"}, None),
        ({"tools": TOOLS}, TOOLS),
    ],
)
def test_tools_that_may_not_be_called_are_not_shown(document: dict[str, Any], found: Any) -> None:
    assert tools_for_template(document) == found
