"""vLLM's calls for tokens, and what models say of their context."""

import json
import threading
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai import OpenAI

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError
from halimede.engine.served_model import ServedModel
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.profile import Profile
from halimede.frontends.openai.template_limits import ON_LOOP, USUAL, TooSlowForLoopError
from halimede.frontends.openai.text_files import read_context, read_text_files
from halimede.frontends.openai.text_tokenizer import LONG, TextTokenizer
from halimede.frontends.openai.tokens import detokenize, tokenize
from tests.frontends.openai.models import SPELLER_WORDS, write_speller

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "world"}}
CONTEXT = 48
MOST_CHARACTERS = CONTEXT * 1024


def ask(client: OpenAI, path: str, **body: Any) -> Any:
    """The reply of the model `teller`, unless the body names another one."""
    url = str(client.base_url.copy_with(path=path))
    return client.post(url, body={"model": "teller", **body}, cast_to=object)


def words_of(client: OpenAI, **body: Any) -> str:
    """The words of what the body has, by the tokens."""
    reply = ask(client, "/tokenize", **body)
    assert reply["count"] == len(reply["tokens"])
    return " ".join(SPELLER_WORDS[token] for token in reply["tokens"])


def test_the_tokens_of_a_prompt(client: OpenAI) -> None:
    assert ask(client, "/tokenize", prompt="hello world 7 moon") == {
        "count": 5,
        "max_model_len": CONTEXT,
        "tokens": [0, 12, 13, 9, 1],
        "token_strs": None,
    }
    named = ask(client, "/tokenize", prompt="hello moon", return_token_strs=True)
    assert named["token_strs"] == ["<s>", "hello", "<unk>"]
    assert words_of(client, prompt="hello", add_special_tokens=False) == "hello"
    assert words_of(client, prompt="", add_special_tokens=False) == ""


def test_the_tokens_of_a_conversation_are_those_of_the_template(client: OpenAI) -> None:
    assert words_of(client, messages=HELLO) == "user=hello; assistant="
    assert words_of(client, messages=HELLO, add_generation_prompt=False) == "user=hello;"
    assert words_of(client, messages=HELLO, add_special_tokens=True) == "<s> user=hello; assistant="
    assert words_of(client, messages=HELLO, tools=[TOOL]) == "world user=hello; assistant="
    assert words_of(client, messages=HELLO, chat_template_kwargs={"tone": "7"}) == "7 user=hello; assistant="
    assert (
        words_of(client, messages=HELLO, continue_final_message=True) == "<unk>"
    )  # "user=hello" without its end


def test_the_text_of_tokens_has_the_special_ones(client: OpenAI) -> None:
    tokens = ask(client, "/tokenize", prompt="hello world")["tokens"]
    assert ask(client, "/detokenize", tokens=tokens) == {"prompt": "<s> hello world"}
    assert ask(client, "/detokenize", tokens=[]) == {"prompt": ""}


def test_long_texts_and_lists_are_answered(client: OpenAI) -> None:
    text = " ".join(["hello"] * LONG)
    assert ask(client, "/tokenize", prompt=text)["tokens"] == [0, *[12] * LONG]
    assert ask(client, "/detokenize", tokens=[12] * (LONG + 1)) == {"prompt": f"{text} hello"}


@pytest.mark.parametrize(
    ("path", "body", "param", "text"),
    [
        ("/tokenize", {}, "prompt", "must be a string, unless there are 'messages'"),
        ("/tokenize", {"prompt": ["hello"]}, "prompt", "must be a string"),
        ("/tokenize", {"prompt": "x", "messages": HELLO}, "prompt", "cannot both be given"),
        ("/tokenize", {"prompt": "x", "add_generation_prompt": True}, "add_generation_prompt", "needs 'messages'"),
        ("/tokenize", {"prompt": "x", "return_token_strs": 1}, "return_token_strs", "must be a boolean"),
        ("/tokenize", {"prompt": "x", "add_special_tokens": 1}, "add_special_tokens", "must be a boolean"),
        ("/tokenize", {"prompt": "x", "max_tokens": 1}, "max_tokens", "not a field of this call"),
        ("/tokenize", {"messages": []}, "messages", "not empty"),
        ("/tokenize", {"messages": HELLO, "tools": {}}, "tools", "must be a list"),
        ("/tokenize", {"messages": HELLO, "chat_template": "x"}, "chat_template", "not supported"),
        ("/tokenize", {"messages": HELLO, "model": "plain"}, "messages", "no chat template"),
        ("/tokenize", {"prompt": "x" * (MOST_CHARACTERS + 1)}, "prompt", f"at most {MOST_CHARACTERS} characters"),
        ("/tokenize", {"prompt": "x", "model": "writer"}, "model", "has no tokenizer.json"),
        ("/tokenize", {"prompt": "x", "model": "picky"}, "prompt", "the tokenizer of the model fails"),
        ("/tokenize", {"prompt": "x", "model": "other"}, "model", "does not serve texts"),
        ("/detokenize", {}, "tokens", "must be a list"),
        ("/detokenize", {"tokens": ["x"]}, "tokens", "must be an integer"),
        ("/detokenize", {"tokens": [-1]}, "tokens", "must be an integer from 0"),
        ("/detokenize", {"tokens": [len(SPELLER_WORDS)]}, "tokens", f"no token {len(SPELLER_WORDS)}"),
        ("/detokenize", {"tokens": [0], "prompt": "x"}, "prompt", "not a field of this call"),
        ("/detokenize", {"tokens": [0], "model": "writer"}, "model", "has no tokenizer.json"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_name(
    client: OpenAI, path: str, body: dict[str, Any], param: str, text: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, path, **body)
    assert (caught.value.param, text in caught.value.message) == (param, True)


def test_models_are_not_found_and_methods_are_named(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        ask(client, "/tokenize", model="nobody", prompt="x")
    for path in ("/tokenize", "/detokenize"):
        with pytest.raises(openai.APIStatusError, match="the method of this path is POST") as caught:
            client.get(str(client.base_url.copy_with(path=path)), cast_to=object)
        assert caught.value.status_code == 405


def test_the_context_is_told_where_it_is_known(client: OpenAI) -> None:
    listed = {model.id: model.to_dict().get("max_model_len") for model in client.models.list()}
    assert (listed["teller"], listed["plain"]) == (CONTEXT, None)
    assert client.models.retrieve("teller").to_dict()["max_model_len"] == CONTEXT
    assert "max_model_len" not in client.models.retrieve("plain").to_dict()
    assert ask(client, "/tokenize", model="plain", prompt="x")["max_model_len"] is None


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "repository" / "model"
    (directory / "1").mkdir(parents=True)
    write_speller(directory)
    return directory


def context_of(directory: Path, **parameters: str) -> int | None:
    config = ModelConfig()
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    return read_context(directory, 1, "", config)


def test_the_context_is_that_of_the_parameter_the_engine_or_the_model(model: Path) -> None:
    assert context_of(model) == CONTEXT
    (model / "config.json").write_text('{"n_positions": 1024}')
    assert context_of(model) == 1024
    (model / "config.json").write_text(
        '{"max_position_embeddings": "many", "text_config": {"n_positions": 7}}'
    )
    assert context_of(model) == 7
    (model / "1" / "model.json").write_text('{"max_model_len": 5}')
    assert context_of(model) == 5
    assert context_of(model, max_model_len="3") == 3
    (model / "1" / "model.json").write_text("{")
    assert context_of(model) is None


def known_model(directory: Path, context: int | None) -> KnownModel:
    """What the calls use of a model."""
    files = read_text_files(directory, 1, "")
    return KnownModel(cast(ServedModel, None), cast(Profile, None), files, context)


def test_texts_that_no_prompt_can_be_as_long_as_do_not_become_tokens(model: Path) -> None:
    known = known_model(model, None)
    with pytest.raises(InvalidArgumentError, match="at most 1048576 are allowed"):
        tokenize({"prompt": "x" * ((1 << 20) + 1)}, known, IgnoredFields(), USUAL)
    assert json.loads(tokenize({"prompt": "x" * (1 << 20)}, known, IgnoredFields(), USUAL))["count"] == 2


def test_the_loop_does_not_wait_for_long_texts(model: Path) -> None:
    known = known_model(model, 1 << 20)
    with pytest.raises(TooSlowForLoopError):
        tokenize({"prompt": "x" * (LONG + 1)}, known, IgnoredFields(), ON_LOOP)
    with pytest.raises(TooSlowForLoopError):
        detokenize({"tokens": [1] * (LONG + 1)}, known, IgnoredFields(), ON_LOOP)
    assert json.loads(tokenize({"prompt": "x" * LONG}, known, IgnoredFields(), ON_LOOP))["count"] == 2


def test_other_threads_go_on_while_a_long_text_becomes_tokens(model: Path) -> None:
    tokenizer = TextTokenizer(model / "tokenizer.json")
    text = "hello world " * 200_000
    done = threading.Event()
    counts: list[int | None] = []

    def count() -> None:
        counts.append(tokenizer.count(text, True))
        done.set()

    thread = threading.Thread(target=count)
    turns = 0
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert counts == [400_001]
    assert turns > 20  # with the interpreter's lock held, there would be hardly one
