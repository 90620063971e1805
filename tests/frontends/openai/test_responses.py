"""`/v1/responses` as the official client sees it, which validates what it gets."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseIncludable
from pydantic import BaseModel

from halimede.frontends.openai.responses.request import INCLUDED
from tests.support.server import ServerProcess

LOOK: Any = {"type": "function", "name": "look", "description": "look up", "parameters": {"type": "object"}}
MESSAGE_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CALL_EVENTS = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


@pytest.fixture
def strict(server: ServerProcess) -> Iterator[OpenAI]:
    """A client that refuses replies of the wrong shape."""
    with OpenAI(
        base_url=f"http://{server.http}/v1",
        api_key="none",
        max_retries=0,
        timeout=30,
        _strict_response_validation=True,
    ) as opened:
        yield opened


def given(response: Any) -> Any:
    """What the model `tools` was given."""
    return json.loads(response.output_text)


def test_a_text_is_answered(strict: OpenAI) -> None:
    reply = strict.responses.create(
        model="writer", input="good day", instructions="be brief", metadata={"run": "7"}, store=True
    )
    assert reply.id.startswith("resp_")
    assert (reply.object, reply.status, reply.error) == ("response", "completed", None)
    assert reply.output_text == "system: be brief user: good day assistant: "
    assert (reply.instructions, reply.metadata) == ("be brief", {"run": "7"})
    item: Any = reply.output[0]
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (7, 7, 14)
    assert reply.usage.input_tokens_details.cached_tokens == 0
    assert reply.usage.output_tokens_details.reasoning_tokens == 0


def test_the_events_of_a_stream_have_their_order(strict: OpenAI) -> None:
    events: list[Any] = list(strict.responses.create(model="writer", input="one two", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    added, part, delta, *done = MESSAGE_EVENTS
    assert [event.type for event in events] == [
        "response.created", "response.in_progress", added, part, *([delta] * 4), *done, "response.completed",
    ]  # fmt: skip
    first, last = events[0], events[-1]
    assert (first.response.status, first.response.output) == ("in_progress", [])
    assert first.response.id == last.response.id
    assert last.response.output_text == "user: one two assistant: "
    assert last.response.usage is not None
    assert last.response.usage.total_tokens == 8
    deltas = [event for event in events if event.type == delta]
    assert [event.delta for event in deltas] == ["user: ", "one ", "two ", "assistant: "]
    assert {event.item_id for event in deltas} == {item.id for item in last.response.output}


def test_events_are_named_as_their_types(server: ServerProcess, client: OpenAI) -> None:
    body = {"model": "writer", "input": "x", "stream": True}
    with client.with_streaming_response.responses.create(**body) as raw:
        lines = [line for line in raw.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    assert names == [json.loads(line.removeprefix("data: "))["type"] for line in lines[1::2]]


def test_the_helper_for_streams_collects_the_response(strict: OpenAI) -> None:
    with strict.responses.stream(model="writer", input="one two") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[1] == "user: one "
    assert snapshots[-1] == final.output_text == "user: one two assistant: "


@pytest.mark.parametrize("stream", [False, True])
def test_an_output_that_was_cut_is_incomplete(strict: OpenAI, stream: bool) -> None:
    reply: Any = strict.responses.create(model="writer", input="one two", max_output_tokens=2, stream=stream)
    if stream:
        last = list(reply)[-1]
        assert last.type == "response.incomplete"
        reply = last.response
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (reply.output_text, reply.output[0].status) == ("user: one ", "incomplete")
    assert (reply.max_output_tokens, reply.usage.output_tokens) == (2, 2)


def test_a_failure_in_the_middle_of_a_stream_is_an_event(strict: OpenAI) -> None:
    last: Any = list(strict.responses.create(model="writer", input="fail late", stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.message) == (
        "server_error",
        "the model has lost its thread",
    )


def test_items_become_messages(strict: OpenAI) -> None:
    items: Any = [
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "what is "},
            {"type": "input_text", "text": "this?"},
        ]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "low"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [
            {"type": "output_text", "text": "Let me look.", "annotations": []},
        ]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"again": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a dog"}]},
        {"type": "function_call", "call_id": "c3", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c3", "output": "a cow"},
    ]  # fmt: skip

    def call(identifier: str, arguments: str) -> Any:
        return {"id": identifier, "type": "function", "function": {"name": "look", "arguments": arguments}}

    assert given(strict.responses.create(model="tools", input=items, instructions="behave")) == {
        "CONVERSATION": [
            {"role": "system", "content": "behave"},
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": "what is this?"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}]},
            {"role": "assistant", "content": "Let me look.",
             "tool_calls": [call("c1", "{}"), call("c2", '{"again": 1}')]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
            {"role": "tool", "tool_call_id": "c2", "content": "a dog"},
            {"role": "assistant", "content": None, "tool_calls": [call("c3", "{}")]},
            {"role": "tool", "tool_call_id": "c3", "content": "a cow"},
        ],
    }  # fmt: skip


def test_a_conversation_goes_on_with_the_result_of_a_function(strict: OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": "where?"}]
    reply = strict.responses.create(model="tools", input=history, tools=[LOOK])
    (call,) = [item for item in reply.output if item.type == "function_call"]
    assert (call.call_id, call.name, call.arguments) == ("call_1", "look", "{}")
    history += reply.output
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "here"})
    again = given(strict.responses.create(model="tools", input=history, tools=[LOOK], tool_choice="none"))
    assert [message["role"] for message in again["CONVERSATION"]] == ["user", "assistant", "tool"]
    assert "TOOLS" not in again


def test_calls_of_functions_stream_after_the_text(strict: OpenAI) -> None:
    events: list[Any] = list(
        strict.responses.create(model="tools", input="where?", tools=[LOOK], stream=True)
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events] == [
        "response.created", "response.in_progress", *MESSAGE_EVENTS, *CALL_EVENTS, "response.completed",
    ]  # fmt: skip
    last = events[-1]
    assert [item.type for item in last.response.output] == ["message", "function_call"]
    places = [event.output_index for event in events if event.type == "response.output_item.done"]
    assert places == [0, 1]
    assert given(last.response)["TOOLS"] == [
        {"type": "function", "function": {each: LOOK[each] for each in ("name", "description", "parameters")}}
    ]


class Given(BaseModel):
    """A part of what the model `tools` answers."""

    response_format: dict[str, Any]


def test_formats_of_text_are_passed_on(strict: OpenAI) -> None:
    parsed = strict.responses.parse(model="tools", input="x", text_format=Given)
    assert parsed.output_parsed is not None
    form = parsed.output_parsed.response_format
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == (
        "json_schema",
        "Given",
        True,
    )
    assert form["json_schema"]["schema"]["required"] == ["response_format"]
    plain = strict.responses.create(model="tools", input="x", text={"format": {"type": "json_object"}})
    assert given(plain)["response_format"] == {"type": "json_object"}


def test_sampling_reaches_the_model(strict: OpenAI) -> None:
    reply = strict.responses.create(
        model="writer",
        input="options",
        temperature=0.5,
        top_p=0.25,
        max_output_tokens=9,
        extra_body={"top_k": 3},
    )
    assert given(reply) == {"temperature": 0.5, "top_p": 0.25, "max_tokens": 9, "top_k": 3}
    assert (reply.temperature, reply.top_p) == (0.5, 0.25)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_come_if_they_are_included(strict: OpenAI, stream: bool) -> None:
    reply: Any = strict.responses.create(
        model="tools", input="x", include=["message.output_text.logprobs"], stream=stream
    )
    if stream:
        events = list(reply)
        (delta,) = [event for event in events if event.type == "response.output_text.delta"]
        assert delta.logprobs[0].logprob == -0.5
        reply = events[-1].response
    (told,) = reply.output[0].content[0].logprobs
    assert (told.token, told.logprob, told.bytes) == ("x", -0.5, [120])


def test_a_client_that_leaves_cancels_its_request(client: OpenAI, server: ServerProcess) -> None:
    stream = client.responses.create(model="writer", input="endless response-left", stream=True)
    assert next(iter(stream)).type == "response.created"
    stream.close()
    server.wait_for("cancelled: assistant:", times=1)


REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({}, "'input' must be a string or a list of items", "input"),
    ({"input": []}, "not empty", "input"),
    ({"input": ["x"]}, "'input[0]' must be an object", "input[0]"),
    ({"input": [{"role": "king", "content": "x"}]}, "must be one of user, assistant", "input[0].role"),
    ({"input": [{"role": "user", "content": 1}]}, "a string or a list of parts", "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "'input_file'", "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]},
     "'input[0].content' has a part of type 'image_url'", "input[0].content"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "is 'item_reference'", "input[0].type"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "string", "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "no function_call before",
     "input[0].call_id"),
    ({"input": "x", "instructions": 1}, "'instructions' must be a string", "instructions"),
    ({"input": "x", "previous_response_id": "resp_1"}, "stores no responses", "previous_response_id"),
    ({"input": "x", "conversation": "conv_1"}, "stores no responses", "conversation"),
    ({"input": "x", "background": True}, "stores no responses", "background"),
    ({"input": "x", "prompt": {"id": "p"}}, "stores no responses", "prompt"),
    ({"input": "x", "store": 1}, "'store' must be a boolean", "store"),
    ({"input": "x", "truncation": "auto"}, "must be 'disabled'", "truncation"),
    ({"input": "x", "tools": [{"type": "web_search"}]}, "'web_search'; only tools of type", "tools[0].type"),
    ({"input": "x", "tools": [{"type": "function"}]}, "'tools[0].name' must be a string", "tools[0].name"),
    ({"input": "x", "tools": [LOOK]}, "does not take 'tools'", "tools"),
    ({"input": "x", "tool_choice": {"type": "mcp"}}, "'tool_choice' must be", "tool_choice"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text, json_schema or", "text.format"),
    ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "a name and a schema", "text.format"),
    ({"input": "x", "text": {"format": {"type": "json_object"}}}, "take 'text.format'", "text.format"),
    ({"input": "x", "include": ["message.output_text.logprobs"]}, "take 'include'", "include"),
    ({"input": "x", "include": ["logprobs"]}, "cannot have 'logprobs'", "include"),
    ({"input": "x", "top_logprobs": 21}, "from 0 to 20", "top_logprobs"),
    ({"input": "x", "max_output_tokens": 0}, "'max_output_tokens' must be an integer from 1", "max_output_tokens"),
    ({"input": "x", "temperature": 3}, "from 0 to 2", "temperature"),
    ({"input": "x", "metadata": {"a": 1}}, "at most 16 strings", "metadata"),
    ({"input": "x", "stream": "yes"}, "'stream' must be a boolean", "stream"),
    ({"model": "plain", "input": "x"}, "no chat template", "input"),
    ({"model": "squash", "input": "x"}, "does not serve chat", "model"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message", "field"), REFUSED)
def test_what_cannot_be_served_is_refused_by_name(
    client: OpenAI, body: dict[str, Any], message: str, field: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/responses", body={"model": "writer"} | body, cast_to=object)
    error: Any = caught.value.body
    assert message in error["message"]
    assert error["param"] == field
    assert set(error) == {"message", "type", "param", "code"}


def test_what_openai_publishes_for_include_is_known() -> None:
    assert frozenset(get_args(ResponseIncludable)) <= INCLUDED


def test_fields_without_effect_are_accepted(client: OpenAI) -> None:
    reply: Any = client.post(
        "/responses",
        body={
            "model": "writer",
            "input": "x",
            "background": False,
            "reasoning": {"effort": None},
            "user": "me",
        },
        cast_to=object,
    )
    assert reply["status"] == "completed"
