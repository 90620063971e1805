"""Calls of tools in the texts of models, however the texts are cut into pieces."""

import json
from typing import Any

import pytest

from halimede.backends.language.tools.call_parser import CallParser, joined, merged
from halimede.backends.language.tools.formats import ToolFormat
from halimede.backends.language.tools.tool_use import ToolUse

NAMES = frozenset({"weather", "time"})
WEATHER = {"name": "weather", "arguments": {"city": 'Bonn } " {', "days": 2}}
TIME: dict[str, Any] = {"name": "time", "arguments": {}}


def parsed(
    text: str, form: ToolFormat | None, size: int, *, single: bool = False, named: str = ""
) -> tuple[str, list[Any]]:
    """What is said and called in a text that comes in pieces of some size."""
    parser = CallParser(ToolUse(NAMES, form, named, single))
    said, parts = "", []
    for place in range(0, len(text), size):
        more, calls = parser.take(text[place : place + size])
        said += more
        parts += calls
        if parser.complete:
            break
    said += parser.end()
    calls = merged(parts)
    assert len({call["id"] for call in calls}) == len(calls)
    assert all(call["type"] == "function" for call in calls)
    return said, [
        {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
        for call in calls
    ]


def hermes(*calls: Any) -> str:
    return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def llama(*calls: Any) -> str:
    return "; ".join(json.dumps({"name": call["name"], "parameters": call["arguments"]}) for call in calls)


HERMES, LLAMA, MISTRAL = ToolFormat.HERMES, ToolFormat.LLAMA3_JSON, ToolFormat.MISTRAL
CASES: list[tuple[ToolFormat | None, str, str, list[Any]]] = [
    (HERMES, hermes(WEATHER), "", [WEATHER]),
    (HERMES, "Let me see.\n" + hermes(WEATHER, TIME), "Let me see.\n", [WEATHER, TIME]),
    (HERMES, hermes(TIME) + "\nDone <b>.", "\nDone <b>.", [TIME]),
    (HERMES, "2 < 3 and <tool_cal", "2 < 3 and <tool_cal", []),
    (HERMES, "<tool_call>what?</tool_call>", "<tool_call>what?</tool_call>", []),
    *(
        (HERMES, rejected, rejected, [])
        for rejected in (
            '<tool_call>{"name": "other", "arguments": {}}',
            '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call> so?',
            '<tool_call>{"name": "time", "argu',
            "<tool_call>{'name': 'time'}</tool_call>",
        )
    ),
    (HERMES, hermes(TIME) + "\n" + hermes({"name": "other"}), hermes({"name": "other"}), [TIME]),
    (HERMES, hermes({"name": "other"}) + hermes(TIME), hermes({"name": "other"}), [TIME]),
    (HERMES, "", "", []),
    (LLAMA, llama(WEATHER), "", [WEATHER]),
    (LLAMA, " <|python_tag|>" + llama(WEATHER, TIME), "", [WEATHER, TIME]),
    (LLAMA, llama(WEATHER, TIME), "", [WEATHER, TIME]),
    (LLAMA, "It is {warm}.", "It is {warm}.", []),
    (LLAMA, '{"a": 1} is JSON', '{"a": 1} is JSON', []),
    *(
        (LLAMA, rejected, rejected, [])
        for rejected in (
            "<|python_tag|>import math\nprint(math.pi)",
            '<|python_tag|>{"name": "other", "parameters": {}}; so?',
            '{"name": "other", "parameters": {}}',
        )
    ),
    (LLAMA, llama(TIME) + " Done.", "Done.", [TIME]),
    (
        MISTRAL,
        '[TOOL_CALLS]weather[ARGS]{"city": "Bonn"}',
        "",
        [{"name": "weather", "arguments": {"city": "Bonn"}}],
    ),
    (
        MISTRAL,
        "Well. [TOOL_CALLS]time[CALL_ID]abc123DEF[ARGS]{}[TOOL_CALLS]time[ARGS]{}",
        "Well. ",
        [TIME, TIME],
    ),
    (MISTRAL, "[TOOL_CALLS]time{}", "", [TIME]),
    (MISTRAL, "time{}", "", [TIME]),
    *(
        (MISTRAL, rejected, rejected, [])
        for rejected in (
            "[TOOL_CALLS]other[ARGS]{}",
            "[TOOL_CALLS]time[ARGS]{'a'}",
            "[TOOL_CALLS]time[ARGS]{",
            "[TOOL_CALLS]time[AR",
            "[TOOL_CALLS]time is up",
            "[TOOL_CALLS] nothing",
            '[TOOL_CALLS] [{"name": "other", "arguments": {}}] so?',
            '[{"a": 1}] is a list',
            "time is up",
            "time",
            "other{}",
        )
    ),
    (MISTRAL, "[TOOL_CALLS] " + json.dumps([TIME]) + " Done.", "Done.", [TIME]),
    (MISTRAL, "[TOOL_CALLS]" + json.dumps([TIME, {"name": "other"}]), '{"name": "other"}]', [TIME]),
    (MISTRAL, "[TOOL_CALLS] " + json.dumps([WEATHER, TIME]), "", [WEATHER, TIME]),
    (MISTRAL, "Well.[TOOL_CALLS]" + json.dumps([TIME]), "Well.", [TIME]),
    (MISTRAL, json.dumps([WEATHER]), "", [WEATHER]),
    (MISTRAL, "[1] is a list, [TOOL", "[1] is a list, [TOOL", []),
    (MISTRAL, "[", "[", []),
    (None, json.dumps([{"name": "time", "parameters": {}}, WEATHER]), "", [TIME, WEATHER]),
    (None, json.dumps([TIME, WEATHER])[:-9], "", [TIME]),
]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(("form", "text", "said", "calls"), CASES)
def test_a_text_is_divided_into_what_is_said_and_what_is_called(
    form: ToolFormat | None, text: str, said: str, calls: list[Any], size: int
) -> None:
    found = parsed(text, form, size)
    assert found[1] == calls
    assert found[0].lstrip() == said.lstrip()


@pytest.mark.parametrize("size", [1, 1000])
def test_one_call_may_be_all_that_is_wanted(size: int) -> None:
    assert parsed(hermes(WEATHER, TIME), HERMES, size, single=True) == ("", [WEATHER])


@pytest.mark.parametrize("size", [1, 1000])
def test_the_text_of_a_tool_that_has_to_be_called_is_its_arguments(size: int) -> None:
    text = json.dumps(WEATHER["arguments"])
    assert parsed(text, None, size, named="weather", single=True) == ("", [WEATHER])


def test_the_arguments_of_a_tool_that_has_to_be_called_come_as_they_are_written() -> None:
    parser = CallParser(ToolUse(NAMES, None, "time", single=True))
    first, second = parser.take('{"a"')[1], parser.take(": 1}")[1]
    assert [part["function"] for part in first] == [{"name": "time", "arguments": '{"a"'}]
    assert second == [{"index": 0, "function": {"arguments": ": 1}"}}]
    assert joined([*first, *second]) == [
        {**first[0], "function": {"name": "time", "arguments": '{"a": 1}'}},
    ]


def test_parts_of_several_calls_stay_apart() -> None:
    parts = CallParser(ToolUse(NAMES, None)).take(json.dumps([TIME, TIME]))[1]
    assert joined(parts) == parts
    assert [part["index"] for part in parts] == [0, 1]
