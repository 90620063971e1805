"""Models of the backend `vllm` as clients see them. The engine is a stand-in that repeats prompts, byte by byte."""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.backends.language.hostile import failures
from tests.frameworks.vllm.conftest import STAND_IN
from tests.support.server import ServerProcess, start_server

CONTEXT = 20_000
MODELS: dict[str, dict[str, Any]] = {
    "echo": {"model": "echo", "max_num_seqs": 2, "max_model_len": CONTEXT},
    "threes": {"model": "echo", "stream_interval": 3},
    "mortal": {"model": "echo"},
    "pooler": {"model": "pooler"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("models")
    for name, arguments in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.json").write_text(json.dumps(arguments))
        (repository / name / "config.pbtxt").write_text('backend: "vllm"')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(STAND_IN), prepend=os.pathsep)
        with start_server(repository, "--allow-openai=true", "--allow-grpc=false") as running:
            yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


def completed(client: OpenAI, prompt: str | list[int], model: str = "echo", **options: Any) -> Any:
    return client.completions.create(model=model, prompt=prompt, **options)


def generate(server: ServerProcess, model: str, **members: Any) -> tuple[int, Any]:
    """Status and body of `generate`."""
    url = f"http://{server.http}/v2/models/{model}/generate"
    try:
        with urllib.request.urlopen(url, json.dumps(members).encode(), timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_completion_has_the_text_its_counts_and_why_it_ended(client: OpenAI) -> None:
    reply = completed(client, "héllo 😀")
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("héllo 😀", "stop")
    assert reply.usage.prompt_tokens == len("héllo 😀".encode()) + 1
    assert reply.usage.completion_tokens == len("héllo 😀".encode()) + 1
    short = completed(client, "héllo", max_tokens=2)
    assert (short.choices[0].text, short.choices[0].finish_reason) == ("h\N{REPLACEMENT CHARACTER}", "length")


@pytest.mark.parametrize(
    ("model", "pieces"), [("echo", ["h", "é", "l", "l", "o"]), ("threes", ["hé", "llo"])]
)
def test_a_stream_has_whole_characters_of_one_or_several_tokens(
    client: OpenAI, model: str, pieces: list[str]
) -> None:
    chunks = list(completed(client, "héllo", model, stream=True, stream_options={"include_usage": True}))
    texts = [text for chunk in chunks if chunk.choices and (text := chunk.choices[0].text)]
    assert "".join(texts) == "héllo"
    assert {*accumulate(texts)} <= {
        *accumulate(pieces)
    }  # tokens that are made meanwhile are passed on together
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == len("héllo".encode()) + 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_word_ends_the_text_and_is_not_shown(client: OpenAI, stream: bool) -> None:
    reply = completed(client, "one two three", "threes", stop=["wo"], stream=stream)
    chunks = list(reply) if stream else [reply]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "one t"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_callers_at_once_get_what_each_asked_for(client: OpenAI) -> None:
    prompts = [f"prompt number {number}" for number in range(6)]
    with ThreadPoolExecutor(len(prompts)) as pool:
        texts = list(pool.map(lambda prompt: completed(client, prompt).choices[0].text, prompts))
    assert texts == prompts


def test_clients_that_leave_make_room(client: OpenAI) -> None:
    streams = [completed(client, "x" * 9000, stream=True) for _ in range(MODELS["echo"]["max_num_seqs"])]
    for stream in streams:
        assert next(iter(stream)).choices[0].text
        stream.close()
    assert completed(client, "room").choices[0].text == "room"


def test_an_error_of_one_request_is_its_own(client: OpenAI) -> None:
    stream = completed(client, "a long text of somebody else " * 9, stream=True)
    first = next(iter(stream)).choices[0].text
    with pytest.raises(
        openai.InternalServerError, match="vLLM failed: EngineGenerateError: the request failed"
    ):
        completed(client, "the request fails")
    assert first + "".join(chunk.choices[0].text for chunk in stream) == "a long text of somebody else " * 9


def test_errors_of_vllm_have_the_status_that_they_are_for(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'min_tokens': it cannot be 7"):
        completed(client, "the request is wrong")
    with pytest.raises(openai.InternalServerError, match="the engine is busy") as caught:
        completed(client, "too many requests")
    assert caught.value.status_code == 503
    assert completed(client, "and on").choices[0].text == "and on"


@pytest.mark.parametrize("prompt", ["the engine dies", "the engine dies, and a stream is told"])
def test_an_engine_that_dies_fails_its_requests_and_is_started_again(
    server: ServerProcess, client: OpenAI, prompt: str
) -> None:
    times = server.log.count("restarted 'mortal_0'")
    with pytest.raises(openai.APIError, match="vLLM's engine has died: EngineCore encountered an issue"):
        list(completed(client, prompt, "mortal", stream="stream" in prompt))
    server.wait_for("restarted 'mortal_0'", times=times + 1)
    assert server.log.count("vLLM's engine has died") > times
    server.wait_until(lambda: server.get("/v2/models/mortal/ready")[0] == 200, "the model to be ready again")
    assert completed(client, "again", "mortal").choices[0].text == "again"


def test_an_engine_that_dies_without_texts_is_started_again(server: ServerProcess, client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="EngineDeadError"):
        client.embeddings.create(model="pooler", input="the engine dies")
    server.wait_for("restarted 'pooler_0'")
    server.wait_until(lambda: server.get("/v2/models/pooler/ready")[0] == 200, "the model to be ready again")
    assert client.embeddings.create(model="pooler", input="a").data[0].embedding == [2, 1, 2, 3]


def test_embeddings_are_made_of_texts_and_of_tokens(server: ServerProcess, client: OpenAI) -> None:
    reply = client.embeddings.create(model="pooler", input=["a", "bb"])
    assert [each.embedding for each in reply.data] == [[2, 1, 2, 3], [3, 1, 2, 3]]
    assert reply.usage.prompt_tokens == 5
    asked = json.dumps({"input": [1, 4, 5], "pooling_params": {"dimensions": [3]}})
    status, body = generate(
        server, "pooler", text_input="", embedding_request=asked, return_num_input_tokens=True,
        return_num_output_tokens=True,
    )  # fmt: skip
    assert (status, json.loads(body["text_output"])) == (200, [3, 1, 2])
    assert (body["num_input_tokens"], body["num_output_tokens"]) == (3, 0)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("{", "embedding_request is not JSON"),
        ("[]", "'input' is a text or a list of token ids"),
        ('{"input": []}', "'input' is a text or a list of token ids"),
        ('{"input": "a", "pooling_params": {"dimensions": "b"}}', "'dimensions' must be a whole number"),
        ('{"input": "the request fails"}', "the request failed"),
    ],
)
def test_wrong_embedding_requests_are_refused(server: ServerProcess, asked: str, told: str) -> None:
    status, body = generate(server, "pooler", text_input="", embedding_request=asked)
    assert status == 400
    assert told in body["error"]


def test_prompts_and_inputs_may_be_token_ids(client: OpenAI) -> None:
    reply = client.embeddings.create(model="pooler", input=[[5, 6], [7]], encoding_format="float")
    assert len(reply.data) == 2
    assert reply.usage.prompt_tokens == 3
    tokens = [byte + 3 for byte in b"words"]
    assert client.completions.create(model="echo", prompt=tokens).choices[0].text == "words"


def test_what_a_model_cannot_do_is_refused(server: ServerProcess) -> None:
    assert generate(server, "pooler", text_input="a") == (
        400,
        {"error": "the model cannot generate; vLLM says that it can embed"},
    )
    status, body = generate(server, "echo", text_input="", embedding_request='{"input": "a"}')
    assert (status, body["error"]) == (400, "the model cannot embed; vLLM says that it can generate")


def test_tensors_are_those_of_the_vllm_backend(server: ServerProcess) -> None:
    status, body = generate(server, "echo", text_input="ab", parameters={"max_tokens": 1})
    assert (status, body["text_output"]) == (200, "aba")
    status, body = generate(
        server, "echo", text_input="<s>ab", sampling_parameters='{"max_tokens": 9}', exclude_input_in_output=True,
        return_finish_reason=True, return_num_input_tokens=True, return_num_output_tokens=True,
    )  # fmt: skip
    assert (status, body["text_output"]) == (200, "ab")
    assert (body["finish_reason"], body["num_input_tokens"], body["num_output_tokens"]) == ("stop", 3, 3)


def test_log_probabilities_are_those_that_vllm_tells(server: ServerProcess, client: OpenAI) -> None:
    reply = completed(client, "ab", logprobs=2)
    assert reply.choices[0].logprobs.tokens == ["a", "b"]
    assert reply.choices[0].logprobs.token_logprobs == [-0.5, -0.5]
    assert reply.choices[0].logprobs.top_logprobs == [{"a": -0.5, "b": -1}, {"b": -0.5, "c": -1}]
    sampling = json.dumps({"logprobs": 1, "max_tokens": 1})
    status, body = generate(
        server, "echo", text_input="a", sampling_parameters=sampling, return_logprobs=True
    )
    assert (status, json.loads(body["logprobs"])) == (
        200,
        [{"100": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}}],
    )


@pytest.mark.parametrize("most", [0, 1])
def test_prompts_have_the_log_probabilities_that_vllm_tells(client: OpenAI, most: int) -> None:
    reply = completed(client, [byte + 3 for byte in b"abc"], logprobs=1, echo=True, max_tokens=most)
    logprobs = reply.choices[0].logprobs
    assert reply.choices[0].text == "abca"[: 3 + most]
    assert logprobs.tokens == ["a", "b", "c", "a"][: 3 + most]
    assert logprobs.token_logprobs == [None, -0.25, -0.25, -0.5][: 3 + most]
    assert logprobs.text_offset == [0, 1, 2, 3][: 3 + most]
    assert reply.usage.completion_tokens == most
    told: Any = client.completions.create(
        model="echo", prompt="ab", max_tokens=1, extra_body={"prompt_logprobs": 0}
    )
    assert [each and [*each] for each in told.choices[0].prompt_logprobs] == [None, ["100"], ["101"]]


def test_bad_requests_are_refused(server: ServerProcess) -> None:
    for members, told in (
        ({"sampling_parameters": '{"beams": 2}'}, "unknown field 'beams'"),
        ({"sampling_parameters": '{"temperature": -1}'}, "'temperature' must be a number from 0 to 100"),
        ({"text_input": "x" * CONTEXT}, f"the model's context holds {CONTEXT}"),
    ):
        status, body = generate(server, "echo", **{"text_input": "a", **members})
        assert status == 400
        assert told in body["error"]


def scraped(server: ServerProcess, model: str) -> dict[str, float]:
    """The metrics of a language model, without buckets."""
    text = server.get("/metrics", server.metrics)[1].decode()
    found = re.findall(rf'^halimede_(\w+){{model="{model}",version="1"}} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_metrics_count_texts_and_their_tokens(server: ServerProcess, client: OpenAI) -> None:
    before = scraped(server, "threes")
    for text in ("abc", "abcdef"):
        completed(client, text, "threes")
    after = scraped(server, "threes")
    grown = {name: after[name] - before[name] for name in before if "usage" not in name}
    assert grown["prompt_tokens_total"] == 4 + 7
    assert grown["generation_tokens_total"] == 4 + 7  # with those that end texts
    assert grown["time_to_first_token_seconds_count"] == 2
    assert 0 < grown["time_to_first_token_seconds_sum"] < 60
    assert grown["time_per_output_token_seconds_count"] == 1 + 4  # the first three come at once
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0


def test_metrics_say_what_runs_and_what_waits(server: ServerProcess, client: OpenAI) -> None:
    streams = [completed(client, "x" * 9000, stream=True) for _ in range(2)]
    for stream in streams:
        next(iter(stream))

    def shows(running: int, waiting: int) -> bool:
        found = scraped(server, "echo")
        return (found["num_requests_running"], found["num_requests_waiting"]) == (running, waiting)

    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(completed, client, "short")
        server.wait_until(lambda: shows(2, 1), "two texts that are written and one that waits")
        assert scraped(server, "echo")["kv_cache_usage_perc"] > 0
        for stream in streams:
            stream.close()
        assert third.result().choices[0].text == "short"
    server.wait_until(lambda: shows(0, 0), "none")


def test_hostile_numbers_and_forms_are_refused_and_fail_nobody(server: ServerProcess) -> None:
    before = server.log.count("Traceback")
    assert failures(server, "echo") == []
    assert server.log.count("Traceback") == before
