"""Language models on OpenVINO GenAI write what the model of `transformers` generates that they were exported from."""

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI

pytest.importorskip("openvino_genai", reason="needs openvino-genai: pip install 'halimede[genai]'")
pytest.importorskip("transformers", reason="makes its models: pip install 'halimede[transformers]'")

import torch

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.language import tensors
from halimede.backends.openvino_genai.backend import GenAIModel
from halimede.backends.openvino_genai.tokenizer import GenAITokenizer
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.errors import CancelledError, HalimedeError, InvalidArgumentError, UnavailableError
from halimede.core.requests import InferResponse
from tests.backends.language.asked import Asked, batch_of
from tests.backends.language.hostile import failures
from tests.frameworks.openvino_genai.exported import export
from tests.frameworks.transformers.tiny_models import CONTEXT, tokenizer
from tests.support.server import ServerProcess, start_server

PROMPTS = ["The moon", "one two three four five one two three four five one two", "café", "10 €"]
TOKENS = 12
EXACT = {"KV_CACHE_PRECISION": "f32", "INFERENCE_PRECISION_HINT": "f32"}
"""As the model of `transformers` computes."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The version directory, and the model of `transformers`."""
    directory = tmp_path_factory.mktemp("models") / "tiny" / "1"
    directory.mkdir(parents=True)
    return directory, export(directory)


class Opened:
    """A model with one instance."""

    def __init__(self, directory: Path, **parameters: str) -> None:
        text = "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }} '
            for key, value in parameters.items()
        )
        config = parse_text(f'name: "tiny" backend: "openvino_genai" {text}', "test")
        backend = GenAIModel(ModelSource("tiny", 1, directory.parent, config), BackendOptions())
        backend.complete_config()
        backend.check_config()
        self.signature = Signature.from_config(config)
        self.instance = backend.create_instance(InstanceSpec("tiny_0"))

    def ask(self, *asked: Asked) -> None:
        self.instance.execute(batch_of(self.signature, *asked))


@pytest.fixture(scope="module")
def opened(model: tuple[Path, Any]) -> Iterator[Opened]:
    found = Opened(model[0], cache_size="1", **EXACT)
    yield found
    found.instance.close()


def greedy(prompt: str, **sampling: Any) -> Asked:
    return Asked(prompt, **{"temperature": 0, "max_tokens": TOKENS, **sampling})


def generated(model: Any, prompt: str) -> str:
    """What the model's own `generate` makes of a prompt."""
    tokens = torch.tensor([tokenizer().encode(prompt)])
    mask = torch.ones_like(tokens)
    made = model.generate(tokens, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False)
    text: str = tokenizer().decode(made[0, tokens.shape[1] :], skip_special_tokens=True)
    return text


def test_texts_that_are_written_at_once_are_those_that_the_model_generates(
    model: tuple[Path, Any], opened: Opened
) -> None:
    asked = [greedy(prompt) for prompt in PROMPTS]
    opened.ask(*asked)
    assert [each.wait().text for each in asked] == [generated(model[1], prompt) for prompt in PROMPTS]
    assert [each.outputs[tensors.INPUT_TOKENS] for each in asked] == [
        len(tokenizer().encode(prompt)) for prompt in PROMPTS
    ]


def test_a_stop_word_and_a_token_end_a_text(opened: Opened) -> None:
    whole = greedy(PROMPTS[0])
    opened.ask(whole)
    word = whole.wait().text[4:7]
    by_word, by_token = greedy(PROMPTS[0], stop=[word]), greedy(PROMPTS[0], stop_token_ids=list(range(300)))
    opened.ask(by_word, by_token)
    assert by_word.wait().text == whole.text[: whole.text.index(word)]
    assert by_token.wait().text == ""
    assert by_word.outputs[tensors.FINISH_REASON] == by_token.outputs[tensors.FINISH_REASON] == b"stop"


def test_sampling_depends_on_the_temperature(opened: Opened) -> None:
    asked = [
        Asked(PROMPTS[0], max_tokens=TOKENS, temperature=1, top_k=50, top_p=0.99, seed=seed)
        for seed in range(4)
    ]
    opened.ask(*asked)
    assert len({each.wait().text for each in asked}) > 1


def test_a_seed_gives_the_same_text_alone_and_among_others(opened: Opened) -> None:
    alone, among, other = (Asked(PROMPTS[0], max_tokens=TOKENS, seed=seed) for seed in (7, 7, 8))
    opened.ask(alone)
    opened.ask(other, among)
    assert alone.wait().text == among.wait().text != other.wait().text


def test_penalties_keep_tokens_from_coming_again(opened: Opened) -> None:
    plain = greedy(PROMPTS[1], max_tokens=40, ignore_eos=True)
    repeated = greedy(PROMPTS[1], max_tokens=40, ignore_eos=True, repetition_penalty=50)
    opened.ask(plain, repeated)
    assert plain.wait().text != repeated.wait().text
    assert plain.count == repeated.count == 40


def test_what_the_pipeline_cannot_do_is_refused(opened: Opened) -> None:
    asked = greedy(PROMPTS[0], logit_bias={"5": 1})
    opened.ask(asked)
    assert str(asked.wait().error) == "sampling_parameters: 'logit_bias' is not possible with OpenVINO GenAI"


class TestDrafts:
    """A draft model proposes tokens, and the texts stay the same."""

    @pytest.fixture
    def directory(self, model: tuple[Path, Any], tmp_path: Path) -> Path:
        """A version whose draft model is the model itself, so that all of its proposals are taken."""
        shutil.copytree(model[0], tmp_path / "1")
        shutil.copytree(model[0], tmp_path / "1" / "draft")
        return tmp_path / "1"

    def test_texts_are_the_same_and_come_several_tokens_at_a_time(
        self, directory: Path, opened: Opened
    ) -> None:
        found = Opened(directory, draft_model="draft", num_assistant_tokens="3", cache_size="1", **EXACT)
        alone = [greedy(prompt, ignore_eos=True, logprobs=0) for prompt in PROMPTS]
        drafted = [greedy(prompt, ignore_eos=True, logprobs=0) for prompt in PROMPTS]
        formed = greedy(PROMPTS[0], structured_outputs={"regex": "[0-9]{5}"})
        opened.ask(*alone)
        found.ask(*drafted, formed)
        assert [each.wait().text for each in drafted] == [each.wait().text for each in alone]
        assert [each.count for each in drafted] == [TOKENS] * len(PROMPTS)
        assert len(drafted[0].texts) < len(alone[0].texts)
        assert re.fullmatch("[0-9]{5}", formed.wait().text)
        found.instance.close()

    def test_what_is_missing_is_named(self, directory: Path) -> None:
        missing = directory / "other" / "openvino_model.xml"
        assert f"'draft_model' is 'other', but there is no file '{missing}'" in refusal(
            directory, draft_model="other"
        )
        assert "'num_assistant_tokens' needs the parameter 'draft_model'" in refusal(
            directory, num_assistant_tokens="3"
        )
        assert "which is outside of the model's directory" in refusal(directory, draft_model="../../draft")
        (directory / "draft" / "openvino_model.xml").write_text("<net>")
        assert f"with the draft model in '{directory / 'draft'}'" in refusal(directory, draft_model="draft")


class Looking(Asked):
    """A request that runs something when it has its first text."""

    def __init__(self, prompt: str, then: Callable[[], None], **sampling: Any) -> None:
        super().__init__(prompt, **sampling)
        self._then = then

    def send(self, response: InferResponse | None, final: bool) -> None:
        first = not self.texts
        super().send(response, final)
        if first:
            self._then()


def test_after_a_step_that_fails_all_others_go_on(model: tuple[Path, Any]) -> None:
    found = Opened(model[0], cache_size="1", **EXACT)
    engine: Any = found.instance._engine  # type: ignore[attr-defined]  # noqa: SLF001 - a step of the engine is to fail
    engine.check = lambda sampling: None  # so that the form is compiled within the step
    sampled: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True, "temperature": 2, "seed": 3}
    alone = Asked(PROMPTS[2], **sampled)
    found.ask(alone)
    alone.wait()
    bad = greedy(PROMPTS[0], structured_outputs={"json": {"type": "zzz"}})
    written = threading.Event()
    neighbours = [Looking(PROMPTS[2], written.set, **sampled), greedy(PROMPTS[1])]
    formed = Asked(PROMPTS[3], structured_outputs={"regex": "[0-9]{30}"}, temperature=2, seed=5)
    found.ask(neighbours[0], formed)
    assert written.wait(60)
    found.ask(neighbours[1], bad)
    assert "Unsupported type" in str(bad.wait().error)
    assert neighbours[0].wait().text == alone.text
    assert neighbours[0].count == 40
    assert neighbours[1].wait().text == generated(model[1], PROMPTS[1])
    assert re.fullmatch("[0-9]{30}", formed.wait().text)
    later = greedy(PROMPTS[0])
    found.ask(later)
    assert later.wait().text == generated(model[1], PROMPTS[0])
    found.instance.close()


def test_alternatives_of_tokens_are_refused(opened: Opened) -> None:
    asked = greedy(PROMPTS[0], logprobs=2)
    opened.ask(asked)
    assert "OpenVINO GenAI, which tells only the log probability of the chosen one" in str(asked.wait().error)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,5}$"}, "kind": {"enum": ["a", "b"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def test_each_text_has_the_form_that_its_request_asks_for(opened: Opened) -> None:
    forms: list[dict[str, Any]] = [
        {"json": SCHEMA},
        {"regex": "[0-9]{3}-(ab|cd)"},
        {"choice": ["yes", 'no "thanks"', "é"]},
        {"grammar": 'root ::= "<" [a-c] [a-c] ">" | "none"'},
    ]
    asked = [
        Asked(PROMPTS[0], structured_outputs=form, temperature=2, seed=2, ignore_eos=True) for form in forms
    ]
    free = greedy(PROMPTS[0])
    opened.ask(*asked, free)
    texts = [each.wait().text for each in asked]
    assert [each.outputs[tensors.FINISH_REASON] for each in asked] == [b"stop"] * 4
    jsonschema.validate(json.loads(texts[0]), SCHEMA)
    assert re.fullmatch("[0-9]{3}-(ab|cd)", texts[1])
    assert texts[2] in ("yes", 'no "thanks"', "é")
    assert re.fullmatch("<[a-c][a-c]>|none", texts[3])
    alone = greedy(PROMPTS[0])
    opened.ask(alone)
    assert alone.wait().text == free.wait().text


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"json": {"type": "zzz"}}, "'structured_outputs.json' cannot be used: Unsupported type \"zzz\""),
        ({"json": "{"}, "'structured_outputs.json' cannot be used: .*Failed to parse JSON"),
        ({"regex": "("}, "'structured_outputs.regex' cannot be used: .*The parenthesis is not closed"),
        (
            {"grammar": "root ::= foo"},
            "'structured_outputs.grammar' cannot be used: .*Rule \"foo\" is not defined",
        ),
    ],
)
def test_a_form_that_cannot_be_compiled_is_refused_and_others_go_on(
    opened: Opened, form: dict[str, Any], told: str
) -> None:
    other, refused = greedy(PROMPTS[0]), greedy(PROMPTS[0], structured_outputs=form)
    opened.ask(other, refused)
    assert re.search(told, str(refused.wait().error))
    assert other.wait().count == TOKENS


def test_a_prompt_longer_than_the_context_is_refused(opened: Opened) -> None:
    asked = greedy("moon " * CONTEXT)
    opened.ask(asked)
    assert isinstance(asked.wait().error, InvalidArgumentError)
    assert f"the model's context holds {CONTEXT}" in str(asked.error)


def test_clients_that_leave_make_room(model: tuple[Path, Any]) -> None:
    found = Opened(model[0], cache_size="1", max_num_seqs="1", max_model_len="100")
    for _ in range(5):
        gone = greedy("a", max_tokens=90, ignore_eos=True)
        found.ask(gone)
        gone.request.cancelled = True
        assert isinstance(gone.wait().error, CancelledError)
    last = greedy("a")
    found.ask(last)
    assert last.wait().text
    found.instance.close()


def test_a_text_that_does_not_fit_into_the_cache_fails_alone(model: tuple[Path, Any]) -> None:
    found = Opened(model[0], num_kv_blocks="3")
    large, small = greedy("a", max_tokens=110, ignore_eos=True), greedy("a", max_tokens=2)
    found.ask(large)
    assert isinstance(large.wait().error, UnavailableError)
    assert "does not fit into the cache; raise cache_size or num_kv_blocks" in str(large.error)
    found.ask(small)
    assert small.wait().error is None
    found.instance.close()


def test_texts_that_do_not_fit_into_the_cache_together_are_written_all_the_same(
    model: tuple[Path, Any],
) -> None:
    found = Opened(model[0], num_kv_blocks="4", **EXACT)
    asked = [greedy(prompt, max_tokens=80, ignore_eos=True) for prompt in ("a", "b", "c")]
    for each in asked:
        found.ask(each)
        each.wait()
    together = [greedy(prompt, max_tokens=80, ignore_eos=True) for prompt in ("a", "b", "c")]
    found.ask(*together)
    assert [each.wait().text for each in together] == [each.text for each in asked]
    found.instance.close()


def refusal(directory: Path, **parameters: str) -> str:
    with pytest.raises(HalimedeError) as caught:
        Opened(directory, **parameters)
    return caught.value.message


@pytest.mark.parametrize("name", ["openvino_model.xml", "openvino_tokenizer.xml", "openvino_detokenizer.xml"])
def test_files_that_are_missing_are_named(model: tuple[Path, Any], tmp_path: Path, name: str) -> None:
    shutil.copytree(model[0], tmp_path / "1")
    (tmp_path / "1" / name).unlink()
    assert f"there is no file '{tmp_path / '1' / name}'" in refusal(tmp_path / "1")


def test_files_that_are_damaged_are_told(model: tuple[Path, Any], tmp_path: Path) -> None:
    shutil.copytree(model[0], tmp_path / "1")
    (tmp_path / "1" / "openvino_model.xml").write_text("<net>")
    assert "OpenVINO GenAI cannot load the model in" in refusal(tmp_path / "1")
    (tmp_path / "1" / "openvino_tokenizer.xml").write_text("<net>")
    assert "cannot load the tokenizer in" in refusal(tmp_path / "1")


def test_wrong_parameters_are_refused_by_name(model: tuple[Path, Any]) -> None:
    assert "'cache_size' must be an integer of at least 1" in refusal(model[0], cache_size="0")
    assert "'enable_prefix_caching' must be one of 'true', 'false'" in refusal(
        model[0], enable_prefix_caching="on"
    )
    assert "'KV_CACHE_PRECISION' must be one of 'f32', 'bf16'" in refusal(model[0], KV_CACHE_PRECISION="f8")
    assert "cannot load the model" in refusal(model[0], TARGET_DEVICE="ABACUS")


@pytest.fixture(scope="module")
def server(model: tuple[Path, Any]) -> Iterator[ServerProcess]:
    repository = model[0].parents[1]
    exact = "".join(f'parameters {{ key: "{key}" value {{ string_value: "f32" }} }} ' for key in EXACT)
    (model[0].parent / "config.pbtxt").write_text(f'backend: "openvino_genai" {exact}')
    with start_server(repository, "--allow-openai=true", "--allow-grpc=false") as running:
        yield running


def test_a_tool_that_has_to_be_called_is_called(server: ServerProcess) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Bonn", "Ulm"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
    options: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "tools": tools}
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=60) as client:
        [choice] = client.chat.completions.create(
            tool_choice={"type": "function", "function": {"name": "weather"}},
            temperature=2,
            seed=2,
            **options,
        ).choices
        with pytest.raises(openai.BadRequestError, match="parameter 'tool_call_parser'"):
            client.chat.completions.create(**options)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Bonn", "Ulm")


def test_the_official_client_chats_and_streams(model: tuple[Path, Any], server: ServerProcess) -> None:
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=60) as client:
        options: Any = {"model": "tiny", "max_tokens": TOKENS, "temperature": 0}
        chunks = list(client.completions.create(prompt=PROMPTS[0], stream=True, **options))
        assert "".join(chunk.choices[0].text for chunk in chunks) == generated(model[1], PROMPTS[0])
        assert len(chunks) > 3
        reply = client.chat.completions.create(messages=[{"role": "user", "content": "Hello"}], **options)
        assert reply.usage is not None
        assert reply.usage.completion_tokens <= TOKENS
        with pytest.raises(openai.BadRequestError, match="the model's context holds"):
            client.completions.create(prompt="moon " * CONTEXT, **options)


class TestDecoding:
    """A tokenizer.json is used in place of the detokenizer if it decodes alike."""

    def told(self, directory: Path) -> list[str]:
        made = GenAITokenizer(directory)
        return [made.decode(made.encode(prompt)) for prompt in PROMPTS]

    def copy(self, model: tuple[Path, Any], to: Path) -> Path:
        return Path(shutil.copytree(model[0], to / "1"))

    def test_it_decodes_as_openvino_does(self, model: tuple[Path, Any], tmp_path: Path) -> None:
        without = self.copy(model, tmp_path)
        (without / "tokenizer.json").unlink()
        assert self.told(model[0]) == self.told(without) == PROMPTS

    def test_that_of_another_vocabulary_is_not_used(self, model: tuple[Path, Any], tmp_path: Path) -> None:
        other = self.copy(model, tmp_path)
        words = json.loads((other / "tokenizer.json").read_text())
        names = list(words["model"]["vocab"])
        words["model"]["vocab"] = {name: len(names) - 1 - place for place, name in enumerate(names)}
        (other / "tokenizer.json").write_text(json.dumps(words))
        assert self.told(other) == PROMPTS

    def test_one_that_cannot_be_read_is_not_used(self, model: tuple[Path, Any], tmp_path: Path) -> None:
        broken = self.copy(model, tmp_path)
        (broken / "tokenizer.json").write_text("{")
        assert self.told(broken) == PROMPTS


def test_the_log_probability_of_each_token_is_that_of_the_model(
    model: tuple[Path, Any], server: ServerProcess
) -> None:
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=60) as client:
        options: Any = {"model": "tiny", "prompt": PROMPTS[0], "max_tokens": TOKENS, "logprobs": 0}
        told = client.completions.create(temperature=0.7, seed=3, **options).choices[0]
        assert told.logprobs is not None
        assert told.logprobs.tokens is not None
        with pytest.raises(openai.BadRequestError, match="leave 'top_logprobs' out"):
            client.completions.create(**{**options, "logprobs": 1})
        with pytest.raises(openai.BadRequestError, match="'echo' is not possible with OpenVINO GenAI"):
            client.completions.create(echo=True, **options)
        with pytest.raises(openai.BadRequestError, match="'prompt_logprobs' is not possible with OpenVINO"):
            client.completions.create(extra_body={"prompt_logprobs": 1}, **options)
        with pytest.raises(openai.BadRequestError, match="'max_tokens' must be at least 1"):
            client.completions.create(echo=True, **{**options, "max_tokens": 0, "logprobs": None})
        echoed = client.completions.create(echo=True, **{**options, "logprobs": None})
        assert echoed.choices[0].text.startswith(PROMPTS[0])
    words = GenAITokenizer(model[0])
    by_bytes = {words.piece(token): token for token in range(len(tokenizer()))}
    tokens = [by_bytes[literal_bytes(text)] for text in told.logprobs.tokens]
    before = tokenizer().encode(PROMPTS[0])
    with torch.no_grad():
        logits = model[1](torch.tensor([before + tokens])).logits[0, len(before) - 1 : -1]
    expected = logits.log_softmax(-1)[range(len(tokens)), tokens]
    torch.testing.assert_close(torch.tensor(told.logprobs.token_logprobs), expected, atol=1e-3, rtol=1e-3)


def literal_bytes(text: str) -> bytes:
    """The bytes of a token's text, in which some are escapes."""
    return text.encode() if "\\x" not in text else text.encode().decode("unicode_escape").encode("latin-1")


def test_the_cache_is_part_of_the_memory_of_a_model(model: tuple[Path, Any], tmp_path: Path) -> None:
    blocks = 100_000
    for name, parameter in (
        ("growing", ""),
        ("fixed", f"num_kv_blocks={blocks}"),
        ("vast", "cache_size=900"),
    ):
        shutil.copytree(model[0], tmp_path / name / "1")
        key, _, value = parameter.partition("=")
        text = f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' if parameter else ""
        (tmp_path / name / "config.pbtxt").write_text(f'backend: "openvino_genai" {text}')
    flags = ("--model-control-mode=explicit", "--model-memory-budget=400GiB", "--allow-grpc=false")
    with start_server(tmp_path, *flags, ready=False) as server:
        for name in ("growing", "fixed"):
            assert load(server, name) == (200, "")
        text = server.get("/metrics", server.metrics)[1].decode()
        taken = {
            name: int(re.findall(rf'^halimede_model_memory_bytes.*"{name}".* (\d+)$', text, re.MULTILINE)[0])
            for name in ("growing", "fixed")
        }
        assert taken["fixed"] - taken["growing"] > blocks * 2048
        status, body = load(server, "vast")
        assert status == 503
        assert re.search("model 'vast' needs 900.* of memory, more than all models may take together", body)


def load(server: ServerProcess, name: str) -> tuple[int, str]:
    """Status and body."""
    url = f"http://{server.http}/v2/repository/models/{name}/load"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("parameters", "warned"),
    [
        ({"enable_prefix_caching": "true", "num_kv_blocks": "40"}, True),
        ({"enable_prefix_caching": "true"}, False),
        ({"num_kv_blocks": "40"}, False),
    ],
)
def test_prefixes_in_a_cache_of_fixed_size_are_warned_of(
    model: tuple[Path, Any], caplog: pytest.LogCaptureFixture, parameters: dict[str, str], warned: bool
) -> None:
    opened = Opened(model[0], **parameters)
    opened.instance.close()
    assert ("OpenVINO GenAI may write wrong texts" in caplog.text) == warned


def test_hostile_numbers_and_forms_are_refused_and_fail_nobody(server: ServerProcess) -> None:
    assert failures(server, "tiny") == []
    assert "Traceback" not in server.log
