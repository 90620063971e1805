"""JSON with long lists, made in steps."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InternalError
from halimede.frontends.openai import long_json
from halimede.frontends.openai.long_json import ITEMS, STEP_BYTES, Steps, encode, read
from halimede.frontends.openai.replies import ChoiceReplies, Output, Replies, Usage
from halimede.frontends.openai.responses.reply import ResponseReply
from halimede.frontends.openai.text_request import TextRequest

TOKENS = 5000
FEWER = 1000


def token(number: int) -> dict[str, Any]:
    """What is told of a token, as of a chat."""
    tops = [{"token": f"t{top}", "logprob": -top / 7, "bytes": [1, 2]} for top in range(20)]
    return {"token": f"t{number}", "logprob": -0.5, "bytes": [1], "top_logprobs": tops}


def made(steps: bytes | Steps) -> tuple[bytes, list[int]]:
    """The JSON that steps make, and the most bytes of a piece; each step must be a small one."""
    assert not isinstance(steps, bytes)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value), [count, max(map(len, end.value))]
        count += 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=60,
)


@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_the_json_is_that_of_the_library(document: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "ITEMS", 3)
        patch.setattr(long_json, "STEP_BYTES", 5)
        encoded = encode(document)
        whole = encoded if isinstance(encoded, bytes) else made(encoded)[0]
    assert whole == orjson.dumps(document)


def replies(call: str) -> Replies:
    if call == "responses":
        return ResponseReply("m", {}, "1")
    asked = TextRequest([], [], 1, [""], (), 0, False, False, call == "chat", "prompt")
    return ChoiceReplies("m", asked)


@pytest.mark.parametrize("call", ["chat", "completions", "responses"])
def test_replies_with_many_log_probabilities_are_made_in_steps(call: str) -> None:
    content = [token(number) for number in range(TOKENS)]
    logprobs: Any = {"content": content}
    if call == "completions":
        logprobs = {"tokens": [each["token"] for each in content], "top_logprobs": content}
    steps = replies(call).whole([Output("text", "stop", [], logprobs)], Usage(1, TOKENS))
    encoded, (count, largest) = made(steps)
    document = json.loads(encoded)
    if call == "responses":
        assert document["output"][0]["content"][0]["logprobs"] == content
    else:
        assert document["choices"][0]["logprobs"] == logprobs
    assert document["usage"]["total_tokens"] == TOKENS + 1
    assert count >= len(encoded) // STEP_BYTES // 2
    assert largest < 3 * STEP_BYTES


@pytest.mark.parametrize("call", ["chat", "completions"])
def test_prompts_with_many_log_probabilities_are_told_in_steps(call: str) -> None:
    told = [None, *({str(number): {"logprob": -0.5, "rank": 1}} for number in range(TOKENS))]
    encoded, (count, _) = made(replies(call).whole([Output("", "stop", [], None, told)], None))
    document = json.loads(encoded)
    assert (document if call == "chat" else document["choices"][0])["prompt_logprobs"] == told
    assert count >= len(encoded) // STEP_BYTES // 2


@pytest.mark.parametrize("call", ["chat", "completions", "responses"])
@pytest.mark.parametrize("logprobs", [None, {"content": [token(number) for number in range(ITEMS // 2)]}])
def test_small_replies_are_made_at_once(call: str, logprobs: Any) -> None:
    assert isinstance(replies(call).whole([Output("text", "stop", [], logprobs)], None), bytes)


def events(data: bytes) -> list[dict[str, Any]]:
    """What the events of a stream say."""
    return [json.loads(event.partition(b"data: ")[2]) for event in data.split(b"\n\n") if event]


def is_in_steps(parts: bytes | Steps) -> bytes:
    """The events, which must have been made in as many steps as they need."""
    encoded, (count, largest) = made(parts)
    assert count >= len(encoded) // STEP_BYTES // 2
    assert largest < 3 * STEP_BYTES
    return encoded


@pytest.mark.parametrize("call", ["chat", "completions"])
def test_events_with_many_log_probabilities_are_made_in_steps(call: str) -> None:
    content = [token(number) for number in range(FEWER)]
    logprobs: Any = {"content": content}
    if call == "completions":
        logprobs = {"tokens": [each["token"] for each in content], "top_logprobs": content}
    made_by = replies(call)
    few = {name: value[:2] for name, value in logprobs.items()}
    small = made_by.text_with_logprobs(3, "text", few)
    assert isinstance(small, bytes)
    [expected] = events(small)
    [event] = events(is_in_steps(made_by.text_with_logprobs(3, "text", logprobs)))
    expected["choices"][0]["logprobs"] = logprobs
    assert event == expected


def test_all_events_of_a_response_with_many_log_probabilities_are_made_in_steps() -> None:
    content = [token(number) for number in range(FEWER)]
    output = Output("a text", "stop", [], {"content": content})

    def stream(pieces: int) -> list[dict[str, Any]]:
        """The events of a reply whose text comes in so many pieces."""
        reply = replies("responses")
        size = FEWER // pieces
        found = reply.begin(0)
        for start in range(0, FEWER, size):
            some = reply.text_with_logprobs(0, "ab", {"content": content[start : start + size]})
            found += some if isinstance(some, bytes) else is_in_steps(some)
        for last in (reply.end(0, output), reply.complete(None)):
            found += is_in_steps(last)
        return events(found)

    told = stream(1)
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    assert [each["type"].removeprefix("response.") for each in told] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    delta, done, part, item, completed = told[4:]
    found = [
        delta["logprobs"],
        done["logprobs"],
        part["part"]["logprobs"],
        item["item"]["content"][0]["logprobs"],
        completed["response"]["output"][0]["content"][0]["logprobs"],
    ]
    assert found == [content] * 5
    assert stream(FEWER // ITEMS)[-2]["item"]["content"][0]["logprobs"] == content


def test_failure_after_many_log_probabilities_is_told_in_steps() -> None:
    reply = replies("responses")
    first = reply.text_with_logprobs(0, "a", {"content": [token(number) for number in range(FEWER)]})
    is_in_steps(first)
    calls = [{"function": {"name": "look"}}]
    assert events(is_in_steps(reply.tool_calls(0, calls, 0)))[-1]["item"]["name"] == "look"
    [failed] = events(is_in_steps(reply.failure(InternalError("lost"))))
    assert (failed["type"], failed["response"]["error"]["message"]) == ("response.failed", "lost")


def read_all(data: bytes) -> tuple[Any, int]:
    """What JSON says, with its fragments as values, and in how many steps it was read."""
    reading, count = read(data), 0
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return json.loads(orjson.dumps(end.value)), count
        count += 1


@given(VALUES, st.booleans())
def test_what_is_read_in_steps_is_what_the_library_reads(value: Any, spaced: bool) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2 if spaced else None).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "_READ_STEP_BYTES", 2)
        assert read_all(text)[0] == value


@given(VALUES, st.data())
def test_what_is_not_json_is_refused_in_steps_too(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    broken = text[:cut] + data.draw(st.sampled_from(("", ",", "]", "}", '"', "x", " 1"))) + text[cut + 1 :]
    try:
        expected = orjson.loads(broken)
    except orjson.JSONDecodeError:
        with pytest.raises(ValueError, match=r"."):
            read_all(broken.encode())
    else:
        assert read_all(broken.encode())[0] == expected


@pytest.mark.parametrize(
    "data", [b"[NaN]", b"[[-Infinity]]", b"[\xff]", b"", b" ", b"{1: 2}", b'{"a" 1}', b"{}{}"]
)
def test_odd_texts_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_all(data)


def test_long_json_is_read_in_small_steps() -> None:
    document = {"prompt": {"logprobs": {"content": [token(number) for number in range(FEWER)]}}}
    data = orjson.dumps(document)
    found, count = read_all(data)
    assert found == document
    assert count > len(data) // 20_000
