"""JSON with long lists, made in steps."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.frontends.openai import long_json
from halimede.frontends.openai.long_json import ITEMS, STEP_BYTES, Steps, encode
from halimede.frontends.openai.replies import ChoiceReplies, Output, Replies, Usage
from halimede.frontends.openai.responses.reply import ResponseReply
from halimede.frontends.openai.text_request import TextRequest

TOKENS = 5000


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
