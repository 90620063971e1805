"""Bodies that containers for language models accept, at a real server."""

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.codec.json_sizes import LARGE
from halimede.frontends.openai.published_fields import FIELDS, Use
from halimede.frontends.openai.routes import Call
from tests.frontends.http.serving import post
from tests.frontends.openai.models import write_repository
from tests.frontends.sagemaker.test_end_to_end import ask, serving
from tests.python_models.support import IN_SERVER, python_model
from tests.support.sagemaker import Platform
from tests.support.server import ServerProcess

SCORER_CONFIG = """
input [
  { name: "text_input" data_type: TYPE_STRING dims: [1] },
  { name: "sampling_parameters" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "return_logprobs" data_type: TYPE_BOOL dims: [1] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [1] },
  { name: "logprobs" data_type: TYPE_STRING dims: [1] }
]
"""
SCORER = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
            count = int(text.split()[-1])
            told = {"logprob": -0.5, "rank": 1, "decoded_token": "x"}
            scores = json.dumps([{str(number): told} for number in range(count)]).encode()
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("text_output", np.array([b"x" * count], object)),
                pb_utils.Tensor("logprobs", np.array([scores], object)),
            ]))
        return responses
"""
"""Tells of each token what Triton's vLLM backend tells."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    write_repository(directory)
    python_model(directory, "scorer", SCORER, SCORER_CONFIG + IN_SERVER)
    return directory


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    flags = (
        f"--sagemaker-model-directory={directory}",
        "--model-control-mode=explicit",
        "--load-model=writer",
    )
    with serving(directory, *flags, DEFAULT_MODEL_NAME="writer") as running:
        yield running


@pytest.fixture(scope="module")
def tgi(directory: Path) -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTION_TGI_COMPAT", "true")
        with serving(directory, DEFAULT_MODEL_NAME="writer") as running:
            yield running


@pytest.fixture(scope="module")
def scorer(directory: Path) -> Iterator[ServerProcess]:
    flags = f"--sagemaker-model-directory={directory}", "--model-control-mode=explicit", "--load-model=scorer"
    with serving(directory, *flags, DEFAULT_MODEL_NAME="scorer") as running:
        yield running


def said(server: ServerProcess, body: Any, path: str = "/invocations") -> Any:
    """The JSON of an answer that is one."""
    answer = ask(server, post(json.dumps(body).encode(), path, "Content-Type: application/json"))
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.body)


def streamed(server: ServerProcess, body: Any) -> tuple[str, list[str]]:
    """The content type and the lines that are not empty of a stream."""
    answer = Platform(server).invoke(json.dumps({**body, "stream": True}))
    assert answer.status == 200
    return answer.content_type, [line for line in answer.body.decode().split("\n") if line]


def refused(server: ServerProcess, body: Any) -> tuple[int, Any]:
    """The status and the error of an answer."""
    answer = ask(server, post(json.dumps(body).encode(), "/invocations"))
    return answer.status, json.loads(answer.body)["error"]


def options(server: ServerProcess, **parameters: Any) -> Any:
    """What the model is asked for where the request has these parameters."""
    given = {"max_new_tokens": 9, **parameters}
    return json.loads(said(server, {"inputs": "options", "parameters": given})["generated_text"])


def events(lines: Sequence[str]) -> list[Any]:
    """The JSON of server-sent events."""
    assert all(line.startswith("data:") for line in lines)
    return [json.loads(line.removeprefix("data:")) for line in lines if line != "data: [DONE]"]


@pytest.mark.parametrize("count", [1, 33, 5000])
def test_every_token_of_a_text_is_told(scorer: ServerProcess, count: int) -> None:
    told = said(scorer, {"inputs": f"tokens {count}", "parameters": {"details": True}})
    assert told["generated_text"] == "x" * count
    tokens = [{"id": number, "text": "x", "log_prob": -0.5} for number in range(count)]
    assert told["details"]["tokens"] == tokens


def test_messages_are_a_chat(server: ServerProcess) -> None:
    messages = [{"role": "user", "content": "good day"}]
    reply = said(server, {"messages": messages, "model": "is not looked at"})
    assert (reply["object"], reply["model"]) == ("chat.completion", "writer")
    assert reply["choices"][0]["message"]["content"] == "user: good day assistant: "
    kind, lines = streamed(server, {"messages": messages})
    assert kind.startswith("text/event-stream")
    assert lines[-1] == "data: [DONE]"
    deltas = [event["choices"][0]["delta"].get("content", "") for event in events(lines)]
    assert "".join(deltas) == "user: good day assistant: "


def test_a_prompt_asks_for_completions(server: ServerProcess) -> None:
    reply = said(server, {"prompt": "one two three", "max_tokens": 2})
    assert (reply["object"], reply["choices"][0]["text"]) == ("text_completion", "one two ")
    assert reply["choices"][0]["finish_reason"] == "length"
    _, lines = streamed(server, {"prompt": "one two"})
    assert [event["choices"][0]["text"] for event in events(lines)] == ["one ", "two ", ""]


def test_errors_of_openai_s_bodies_are_in_its_shape(server: ServerProcess) -> None:
    status, error = refused(server, {"messages": []})
    assert (status, error["type"]) == (400, "invalid_request_error")
    status, error = refused(server, {"prompt": "fail now"})
    assert (status, error["message"]) == (503, "no room for this prompt")


def test_inputs_are_continued(server: ServerProcess) -> None:
    assert said(server, {"inputs": "one two"}) == {"generated_text": "one two "}
    full = {"return_full_text": True, "details": True, "max_new_tokens": 2}
    whole = said(server, {"inputs": "one two", "parameters": full})
    assert whole == {
        "generated_text": "one twoone two ",
        "details": {
            "finish_reason": "eos_token",
            "generated_tokens": 2,
            "input_length": 2,
            "inputs": "one two",
        },
    }
    several = said(server, {"inputs": ["a", "b c"], "parameters": {"max_new_tokens": 1}})
    assert several == [{"generated_text": "a "}, {"generated_text": "b "}]


def test_why_a_text_ended_is_told(server: ServerProcess) -> None:
    def reason(**parameters: Any) -> str:
        body = {"inputs": "one two three", "parameters": {"details": True, **parameters}}
        return str(said(server, body)["details"]["finish_reason"])

    assert reason() == "eos_token"
    assert reason(max_new_tokens=1) == "length"
    assert reason(stop=["two"]) == reason(stop_sequences=["two"]) == "stop_sequence"


def test_parameters_become_those_of_the_model(server: ServerProcess) -> None:
    assert options(server) == {"max_tokens": 9, "temperature": 0}
    assert options(server, do_sample=True) == {"max_tokens": 9}
    assert options(server, top_p=0.5, top_k=3, repetition_penalty=1.2) == {
        "max_tokens": 9, "top_p": 0.5, "top_k": 3, "repetition_penalty": 1.2,
    }  # fmt: skip
    assert options(server, do_sample=False, temperature=0.7, seed=4) == {
        "max_tokens": 9, "seed": 4, "temperature": 0,
    }  # fmt: skip
    assert options(server, best_of=1, watermark=False, typical_p=None)["max_tokens"] == 9
    whole = said(server, {"inputs": "options"})
    assert json.loads(whole["generated_text"])["max_tokens"] == 30


def test_parameters_that_openai_s_api_has_are_those_of_the_model_or_refused(server: ServerProcess) -> None:
    given = {"ignore_eos": True, "stop_token_ids": [5], "bad_words": ["x"], "skip_special_tokens": False}
    assert options(server, **given) == {**given, "max_tokens": 9, "temperature": 0}
    assert options(server, guided_regex="a")["structured_outputs"] == {"regex": "a"}
    body = {"inputs": "options", "parameters": {"max_tokens": 7}}
    assert json.loads(said(server, body)["generated_text"])["max_tokens"] == 7
    shown = {"stop": ["two"], "include_stop_str_in_output": True}
    assert said(server, {"inputs": "one two three", "parameters": shown}) == {"generated_text": "one two"}
    for name, value in {
        "use_beam_search": True, "response_format": {"type": "json_object"}, "truncate_prompt_tokens": 3,
        "stream": True, "echo": True, "max_completion_tokens": 3,
    }.items():  # fmt: skip
        status, error = refused(server, {"inputs": "a", "parameters": {name: value}})
        assert (status, f"'{name}'" in error) == (400, True)


def test_no_published_parameter_is_ignored(server: ServerProcess) -> None:
    labels = {name for name, use in FIELDS[Call.COMPLETIONS].items() if use is Use.LABEL}
    usual = said(server, {"inputs": "options"})
    for name in FIELDS[Call.COMPLETIONS].keys() - labels:
        body = json.dumps({"inputs": "options", "parameters": {name: {"odd": [3]}}}).encode()
        answer = ask(server, post(body, "/invocations"))
        ignored = answer.status == 200 and json.loads(answer.body) == usual
        assert (name, ignored, answer.status in (200, 400)) == (name, False, True)


def test_lines_of_json_are_streamed(server: ServerProcess) -> None:
    kind, lines = streamed(server, {"inputs": "one two"})
    assert kind == "application/jsonlines"
    documents = [json.loads(line) for line in lines]
    assert documents[:2] == [
        {"token": {"id": None, "text": text, "log_prob": None}} for text in ("one ", "two ")
    ]
    assert documents[-1]["generated_text"] == "one two "
    assert documents[-1]["details"]["finish_reason"] == "eos_token"


def test_tgi_s_shapes(tgi: ServerProcess) -> None:
    assert said(tgi, {"inputs": "one two"}) == [{"generated_text": "one two "}]
    kind, lines = streamed(tgi, {"inputs": "one two", "parameters": {"max_new_tokens": 1}})
    assert kind.startswith("text/event-stream")
    first, *_, last = events(lines)
    assert first["index"] == 1
    assert first["token"] == {"id": None, "text": "one ", "logprob": None, "special": False}
    assert first["generated_text"] is None
    assert last["generated_text"] == "one "
    assert last["details"] == {"finish_reason": "length", "generated_tokens": 1, "input_length": 2}


def test_hugging_face_s_client(tgi: ServerProcess) -> None:
    with InferenceClient(f"http://{tgi.sagemaker}/invocations", timeout=30) as client:
        assert client.text_generation("one two") == "one two "
        told = client.text_generation("one two", max_new_tokens=1, details=True)
        assert (told.generated_text, told.details.finish_reason) == ("one ", "length")
        assert list(client.text_generation("one two", stream=True))[:2] == ["one ", "two "]
        *_, last = client.text_generation("one two", stream=True, details=True)
        assert (last.generated_text, last.details.finish_reason) == ("one two ", "eos_token")
        with pytest.raises(HfHubHTTPError, match="'best_of' in 'parameters' is not supported"):
            client.text_generation("one two", best_of=3)


def test_failures_in_the_middle_of_a_stream_are_told_in_it(server: ServerProcess, tgi: ServerProcess) -> None:
    _, lines = streamed(server, {"inputs": "fail late"})
    last = json.loads(lines[-1])
    assert last["error"] == "the model has lost its thread"
    assert (last["generated_text"], last["details"]["finish_reason"]) == ("", "error")
    _, lines = streamed(tgi, {"inputs": "fail late"})
    assert events(lines)[-1] == {"error": "the model has lost its thread", "error_type": "generation"}
    _, lines = streamed(server, {"prompt": "fail late"})
    assert events(lines)[-1]["error"]["message"] == "the model has lost its thread"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"inputs": ""}, None),
        ({"inputs": 5}, "'inputs' must be a string or a list of strings that is not empty"),
        ({"inputs": None}, "'inputs' must be a string or a list of strings that is not empty"),
        ({"inputs": []}, "'inputs' must be a string or a list of strings that is not empty"),
        ({"inputs": ["a", {}]}, "'inputs' must be a string or a list of strings"),
        ({"inputs": "a", "parameters": 3}, "'parameters' must be an object"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, "'max_new_tokens' must be an integer above 0"),
        ({"inputs": "a", "parameters": {"do_sample": 1}}, "'do_sample' must be a boolean"),
        ({"inputs": "a", "parameters": {"best_of": 3}}, "'best_of' in 'parameters' is not supported"),
        ({"inputs": "a", "parameters": {"top_p": 3}}, "'top_p' must be a number from 0 to 1"),
        ({"inputs": ["a", "b"], "stream": True}, "'inputs' must be one text where 'stream' is true"),
        ({"inputs": "fail now"}, "no room for this prompt"),
    ],
)
def test_what_is_wrong_is_told(server: ServerProcess, body: Any, text: str | None) -> None:
    if text is None:
        assert said(server, body) == {"generated_text": ""}
        return
    status, error = refused(server, body)
    assert error == text
    assert status == (503 if "room" in text else 400)


@pytest.mark.parametrize("path", ["/invocations", "/models/{key}/invoke"])
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ('{"inputs":"a","%s":1}', "generated_text"),
        ('{"messages":[{"role":"user","content":"a"}],"%s":1}', "choices"),
        ('{"input":"a","%s":1}', "writer"),
        ('{"inputs":5,"%s":1}', "'inputs' must be a string"),
        ('{"%s":1}', "decoupled"),
        ('["%s"]', "must be a JSON object"),
    ],
)
def test_a_large_body_is_answered_as_a_small_one(
    server: ServerProcess, directory: Path, path: str, form: str, text: str
) -> None:
    load = {"model_name": "writer-key", "url": str(directory / "writer")}
    if "{key}" in path:
        assert ask(server, post(json.dumps(load).encode(), "/models")).status in (200, 409)
    answers = []
    for size in (1, 2 * LARGE):
        answer = ask(server, post((form % ("x" * size)).encode(), path.format(key="writer-key")))
        assert text in answer.body.decode()
        answers.append(answer.status)
    assert answers[0] == answers[1]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        (
            "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "stop_sequences", "do_sample",
            "details", "return_full_text", "repetition_penalty", "logit_bias", "grammar", "other",
        )
    ),
    ANYTHING,
    max_size=4,
)  # fmt: skip
BODIES = st.fixed_dictionaries(
    {"inputs": st.sampled_from(["a b", ["a", "b"], "", [], 3, ["a", 1], "\ud800"]) | ANYTHING},
    optional={"parameters": PARAMETERS | ANYTHING, "stream": st.booleans() | ANYTHING, "model": ANYTHING},
)


@settings(max_examples=80, deadline=None)
@given(BODIES)
def test_no_body_is_the_server_s_failure(server: ServerProcess, body: Any) -> None:
    answer = Platform(server).invoke(json.dumps(body))
    # 501: a request for inference, which this model has only as a stream
    assert answer.status in (200, 400, 501), (answer.status, answer.body)


def test_other_bodies_are_inferences(server: ServerProcess) -> None:
    status, error = refused(server, {"inputs": [{"name": "text_input"}]})
    assert (status, "decoupled" in error) == (501, True)
    answer = ask(server, post(b'{"messages"', "/invocations"))
    assert answer.status == 400


def test_models_of_a_multi_model_endpoint(server: ServerProcess, directory: Path) -> None:
    platform = Platform(server)
    assert platform.load("key", directory / "squash", "squash.tar.gz").status == 200
    path = "/models/key/invoke"
    reply = said(server, {"input": ["ab", "b"]}, path)
    assert [each["embedding"] for each in reply["data"]] == [[2, 1, 0.5], [1, 0, 0.5]]
    answer = platform.invoke('{"messages": [{"role": "user", "content": "x"}]}', "key")
    assert answer.status == 400
    assert "does not serve chat" in answer.document["error"]["message"]
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["abc"]}
    for body in ({"inputs": [tensor]}, {"id": "7", "inputs": [tensor]}):
        assert said(server, body, path)["outputs"][0]["data"] == [3, 1, 0.5]
    answer = platform.invoke('{"inputs": "x"}', "key")
    assert (answer.status, "does not serve completions" in answer.document["error"]) == (400, True)
    assert platform.unload("key").status == 200


@pytest.mark.parametrize("member", ["prompt", "inputs"])
def test_a_client_that_goes_cancels_its_request(server: ServerProcess, member: str) -> None:
    body = json.dumps({member: f"endless {member}", "stream": True, "parameters": {"max_new_tokens": 9999}})
    with socket.create_connection(tuple(server.sagemaker.split(":")), timeout=30) as connection:  # type: ignore[arg-type]
        connection.sendall(post(body.encode(), "/invocations"))
        assert connection.recv(100)
    server.wait_for(f"cancelled: {member}")
