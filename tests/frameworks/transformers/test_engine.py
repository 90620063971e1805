"""What the engine writes is what the model itself generates, whatever else is under way."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")

import torch
import transformers

from halimede.backends.language.generation import Generation
from halimede.backends.language.sampling import Sampling, read_sampling
from halimede.backends.language.structure import read_structure
from halimede.backends.language.text_request import TextRequest
from halimede.backends.transformers.abilities import Ability, try_abilities
from halimede.backends.transformers.engine import TransformersEngine
from halimede.backends.transformers.forward import Forward
from halimede.backends.transformers.grammars import Grammars
from halimede.backends.transformers.rows import Rows
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest
from tests.frameworks.transformers import tiny_models
from tests.frameworks.transformers.tiny_models import tokenizer

PROMPTS = ["The moon", "one two three four five one two three four five one two", "café", "10 €"]
ENDS = frozenset([tokenizer().eos_token_id])
ABILITIES = {
    "llama": Ability.TOGETHER,
    "mistral": Ability.TOGETHER,
    "qwen2": Ability.TOGETHER,
    "gpt2": Ability.TOGETHER,
    "bloom": Ability.TOGETHER,
    "mamba": Ability.SINGLY,
    "rwkv": Ability.AGAIN,
}


@cache
def model_of(kind: str) -> Any:
    return tiny_models.make(kind)


def encode(word: str) -> list[int]:
    found: list[int] = tokenizer().encode(word, add_special_tokens=False)
    return found


def engine_of(kind: str, step_tokens: int = 512, ability: Ability | None = None) -> TransformersEngine:
    model = model_of(kind)
    ability = ability or ABILITIES[kind]

    def make_cache() -> Any:
        together = ability is Ability.TOGETHER
        return transformers.DynamicCache(config=None if together else model.config)

    return TransformersEngine(
        Forward(model), ability, make_cache, step_tokens, ENDS, Grammars(tokenizer(), ENDS), encode
    )


def text(prompt: str, room: int = 12, **sampling: Any) -> Generation:
    request = InferRequest("m", {}, lambda response, final: None)
    asked = TextRequest(prompt, True, False, Sampling(**{"temperature": 0.0, **sampling}), frozenset())
    return Generation(request, _drop, asked, tokenizer().encode(prompt), room, Words())


class Words:
    """The tokenizer of the models."""

    max_characters = 16

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        found: list[int] = tokenizer().encode(text, add_special_tokens=special)
        return found

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        found: str = tokenizer().decode(tokens, skip_special_tokens=not special)
        return found

    def piece(self, token: int) -> bytes:
        return self.decode([token]).encode()


def _drop(request: InferRequest, response: object, final: bool) -> None:
    """Nobody reads these."""


def write(engine: TransformersEngine, *texts: Generation) -> list[list[int]]:
    """The tokens of the texts, each of which begins a step after the one before."""
    under_way: list[Generation] = []
    waiting = list(texts)
    while waiting or under_way:
        if waiting:
            engine.add(waiting[0])
            under_way.append(waiting.pop(0))
        engine.step()
        ended = [each for each in under_way if each.finish]
        engine.remove(ended)
        under_way = [each for each in under_way if not each.finish]
    return [each.tokens for each in texts]


def generated(kind: str, prompt: str, room: int = 12) -> list[int]:
    """What the model's own `generate` makes of a prompt."""
    tokens = torch.tensor([tokenizer().encode(prompt)])
    mask = torch.ones_like(tokens)
    made = model_of(kind).generate(tokens, attention_mask=mask, max_new_tokens=room, do_sample=False)
    found: list[int] = made[0, tokens.shape[1] :].tolist()
    return found


@pytest.mark.parametrize("kind", ABILITIES)
def test_what_a_model_can_do_is_found_out(kind: str) -> None:
    model = model_of(kind)

    def own() -> Any:
        return transformers.DynamicCache(config=model.config)

    assert try_abilities(Forward(model), transformers.DynamicCache, own, model.dtype) is ABILITIES[kind]


@pytest.mark.parametrize("kind", ABILITIES)
@pytest.mark.parametrize("step_tokens", [512, 3])
def test_texts_that_are_written_at_once_are_those_that_the_model_generates(
    kind: str, step_tokens: int
) -> None:
    texts = [text(prompt, room) for prompt, room in zip(PROMPTS, (12, 9, 12, 3), strict=True)]
    written = write(engine_of(kind, step_tokens), *texts)
    assert written == [generated(kind, each.asked.prompt, each.room) for each in texts]


def test_only_allowed_tokens_and_no_bad_words_are_written() -> None:
    first, second = encode("xq")

    def written(*bad_words: str) -> list[int]:
        [tokens] = write(
            engine_of("llama"),
            text(
                PROMPTS[0],
                30,
                temperature=1.0,
                seed=3,
                allowed_token_ids=(first, second),
                bad_words=bad_words,
            ),
        )
        return tokens

    pairs = set(pairwise(written()))
    assert pairs == {(first, first), (first, second), (second, first), (second, second)}
    assert set(written("x")) == {second}
    tokens = written("xq")
    assert set(tokens) == {first, second}
    assert (first, second) not in pairwise(tokens)


@pytest.mark.parametrize("ability", [Ability.SINGLY, Ability.AGAIN])
def test_texts_written_in_other_ways_are_the_same(ability: Ability) -> None:
    texts = [text(prompt) for prompt in PROMPTS]
    written = write(engine_of("mistral", ability=ability), *texts)
    assert written == [generated("mistral", prompt) for prompt in PROMPTS]


def test_a_long_prompt_is_read_between_the_tokens_of_others() -> None:
    engine = engine_of("llama", step_tokens=4)
    short, long = text("a", 40, ignore_eos=True), text(PROMPTS[1] * 2, 4, ignore_eos=True)
    engine.add(short)
    engine.step()
    engine.add(long)
    steps = 0
    while not long.tokens:
        before = len(short.tokens)
        engine.step()
        steps += 1
        assert len(short.tokens) == before + 1
    assert steps >= len(long.prompt) / 4


def test_removed_texts_leave_the_others_as_they_are() -> None:
    engine = engine_of("llama")
    texts = [text(prompt, ignore_eos=True) for prompt in PROMPTS]
    for each in texts:
        engine.add(each)
    engine.step()
    engine.step()
    engine.remove([texts[0], texts[2]])
    alone = text(PROMPTS[1], ignore_eos=True)
    [wanted] = write(engine_of("llama"), alone)
    while not texts[1].finish:
        engine.step()
    assert texts[1].tokens == wanted
    assert len(texts[0].tokens) == len(texts[2].tokens) == 2


def test_a_seed_gives_the_same_text_alone_and_among_others() -> None:
    def seeded() -> Generation:
        return text("The moon", temperature=0.9, top_p=0.95, top_k=50, min_p=0.001, seed=7, ignore_eos=True)

    [alone] = write(engine_of("llama"), seeded())
    among = write(
        engine_of("llama"), text("café", temperature=1.0), seeded(), text("10 €", temperature=1.0, seed=8)
    )
    assert among[1] == alone
    [other] = write(engine_of("llama"), text("The moon", temperature=0.9, seed=8, ignore_eos=True))
    assert other != alone


def test_all_bits_of_a_seed_matter() -> None:
    seeds = (7, 7 + (1 << 32), 7 - (1 << 32), -7, 7 - (1 << 63), (1 << 63) - 1)

    def written(seed: int) -> list[int]:
        return write(engine_of("llama"), text("a", temperature=1.0, seed=seed, ignore_eos=True))[0]

    assert len({tuple(written(seed)) for seed in seeds}) == len(seeds)
    assert written(seeds[1]) == written(seeds[1])


def test_the_end_of_a_text_can_be_put_off_or_ignored() -> None:
    engine = engine_of("llama")
    end = tokenizer().eos_token_id
    bias = {end: 100.0}
    stopped, late, ignored = (
        text("a", logit_bias=bias),
        text("a", logit_bias=bias, min_tokens=3),
        text("a", logit_bias=bias, ignore_eos=True),
    )
    assert write(engine, stopped, late, ignored)[0] == [end]
    assert (stopped.finish, late.finish, ignored.finish) == ("stop", "stop", "length")
    assert late.tokens[3:] == [end]
    assert end not in late.tokens[:3]
    assert ignored.tokens == [end] * 12


def test_penalties_keep_tokens_from_coming_again() -> None:
    plain, frequent, present, repeated = write(
        engine_of("llama"),
        text("a", 24, ignore_eos=True, logit_bias={9: 30.0}),
        text("a", 24, ignore_eos=True, logit_bias={9: 3.0}, frequency_penalty=2.0),
        text("a", 24, ignore_eos=True, logit_bias={9: 3.0}, presence_penalty=2.0),
        text("a", 24, ignore_eos=True, repetition_penalty=50.0),
    )
    assert plain == [9] * 24
    assert len(set(frequent)) > 4
    assert len(set(present)) > 1
    assert len(set(repeated)) > 12


def test_tokens_of_the_request_end_a_text() -> None:
    [tokens] = write(engine_of("llama"), text("a", logit_bias={9: 100.0}, stop_token_ids=(9,)))
    assert tokens == [9]


class Failing(Forward):
    """A model that fails in passes with more rows than one, or with a token."""

    def __init__(self, kind: str, *, together: bool = False, token: int = -1) -> None:
        super().__init__(model_of(kind))
        self.together, self.token = together, token

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Any
    ) -> torch.Tensor:
        logits = super().__call__(tokens, positions, mask, cache)  # which has changed the cache
        if (self.together and len(tokens) > 1) or bool((tokens == self.token).any()):
            raise RuntimeError("out of memory")
        return logits


def failing_engine(kind: str, forward: Forward) -> TransformersEngine:
    usual = engine_of(kind)
    grammars = usual._grammars  # noqa: SLF001 - shared with another engine of the test
    return TransformersEngine(
        forward, ABILITIES[kind], transformers.DynamicCache, 512, ENDS, grammars, encode
    )


def test_if_a_pass_fails_texts_are_written_by_themselves() -> None:
    texts = [text(prompt, ignore_eos=True) for prompt in PROMPTS]
    written = write(failing_engine("llama", Failing("llama", together=True)), *texts)
    assert written == write(engine_of("llama"), *(text(prompt, ignore_eos=True) for prompt in PROMPTS))


@pytest.mark.parametrize("kind", ["llama", "rwkv"])
def test_only_the_text_that_fails_alone_fails(kind: str) -> None:
    wanted = write(engine_of(kind), *(text(prompt, ignore_eos=True) for prompt in PROMPTS[:3]))
    forward = Failing(kind, token=9)
    texts = [text(prompt, ignore_eos=True) for prompt in PROMPTS[:3]]
    guilty = text("a", ignore_eos=True, logit_bias={9: 200.0})
    unreadable = text("a", ignore_eos=True)
    unreadable.prompt.append(9)
    written = write(failing_engine(kind, forward), texts[0], guilty, texts[1], unreadable, texts[2])
    assert [written[0], written[2], written[4]] == wanted
    assert [each.finish for each in (guilty, unreadable)] == ["error", "error"]
    assert guilty.tokens == [9]
    assert unreadable.tokens == []


def told(generation: Generation) -> Any:
    """The error that the client of a text gets."""
    sent: list[Any] = []
    generation._send = lambda request, response, final: sent.append(response)  # noqa: SLF001 - nobody waits for it otherwise
    generation.send()
    return sent[0].error


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "'allowed_token_ids' contains 1073741824, which is not in the model's vocabulary": {
        "allowed_token_ids": (9, 1 << 30)
    },
    "'logit_bias' contains 1073741824, which is not in the model's vocabulary": {
        "logit_bias": {9: 1.0, 1 << 30: 1.0}
    },
    "no token is possible any more": {
        "allowed_token_ids": (9,),
        "structure": read_structure("structured_outputs", {"choice": ["yes"]}),
    },
}


@pytest.mark.parametrize("kind", ["llama", "mamba", "rwkv"])
@pytest.mark.parametrize("why", IMPOSSIBLE)
@pytest.mark.parametrize("first", [False, True])
def test_a_text_that_no_token_can_continue_leaves_its_neighbours_as_they_are(
    kind: str, why: str, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = write(engine_of(kind), *(text(prompt, ignore_eos=True) for prompt in PROMPTS[:2]))
    caplog.clear()  # of what the framework says of kernels when it is first used
    texts = [text(prompt, ignore_eos=True) for prompt in PROMPTS[:2]]
    guilty = [text("a", **IMPOSSIBLE[why]) for _ in range(2)]
    asked = [guilty[0], *texts, guilty[1]] if first else [texts[0], *guilty, texts[1]]
    write(engine_of(kind), *asked)
    assert [each.tokens for each in texts] == wanted
    assert [each.finish for each in guilty] == ["error", "error"]
    error = told(guilty[0])
    assert isinstance(error, InvalidArgumentError)
    assert why in error.message
    assert caplog.text == ""  # the client's mistake is nothing for the log


@pytest.mark.parametrize("place", ["join", "keep"])
def test_if_rows_cannot_be_put_together_no_text_that_is_written_is_lost(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = write(engine_of("llama"), *(text(prompt, 6, ignore_eos=True) for prompt in PROMPTS[:3]))
    own = getattr(Rows, place)
    calls = 0

    def fail(rows: Rows, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")
        own(rows, *arguments)

    monkeypatch.setattr(Rows, place, fail)
    texts = [text(prompt, 6, ignore_eos=True) for prompt in PROMPTS[:3]]
    written = write(engine_of("llama"), *texts)
    failed = [number for number, each in enumerate(texts) if each.finish == "error"]
    assert failed == ([1] if place == "join" else [])  # the one for which there was no memory
    assert [tokens for number, tokens in enumerate(written) if number not in failed] == [
        tokens for number, tokens in enumerate(wanted) if number not in failed
    ]


def test_the_least_temperatures_mean_the_most_probable_token() -> None:
    tiny = read_sampling('{"temperature": 1e-320}', Sampling())
    assert tiny.temperature == 0
    small = text(PROMPTS[0], temperature=read_sampling('{"temperature": 1e-5}', Sampling()).temperature)
    assert write(engine_of("llama"), small)[0] == generated("llama", PROMPTS[0])
