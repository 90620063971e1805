"""Texts of a form: whatever the weights are, the text has it, and each text among others has its own."""

import json
import re
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")
pytest.importorskip("llguidance", reason="needs llguidance: pip install 'halimede[transformers]'")

import jsonschema
import torch

from halimede.backends.language.generation import Generation
from halimede.backends.language.structure import Structure, read_response_format, read_structure
from halimede.backends.transformers.grammars import Grammars
from halimede.core.errors import InvalidArgumentError, UnsupportedError
from tests.frameworks.transformers.test_engine import ENDS, engine_of, text, write
from tests.frameworks.transformers.tiny_models import tokenizer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "number": {"type": "integer", "minimum": 0, "maximum": 99},
        "kinds": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "number", "kinds"],
    "additionalProperties": False,
}
ROOM = 120


def formed(prompt: str, sampling: dict[str, Any], **form: Any) -> Generation:
    return text(prompt, ROOM, **{**sampling, "structure": read_structure("structured_outputs", form)})


def written(generation: Generation) -> str:
    found: str = tokenizer().decode(generation.tokens, skip_special_tokens=True)
    return found


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 5.0, "seed": 3, "top_p": 0.9}])
def test_each_text_has_the_form_that_its_request_asks_for(sampling: dict[str, Any]) -> None:
    engine = engine_of("llama")
    texts = [
        formed("The moon", sampling, json=SCHEMA),
        formed("café", sampling, regex="[0-9]{3}-(ab|cd)"),
        formed("one", sampling, choice=["yes", 'no "thanks"', "e\u00e9"]),
        formed("two", sampling, grammar='root ::= "<" [a-c] [a-c] ">" | "none"'),
    ]
    free = text("The moon", 9, ignore_eos=True, **sampling)
    write(engine, *texts, free)
    assert [each.finish for each in texts] == ["stop"] * 4
    jsonschema.validate(json.loads(written(texts[0])), SCHEMA)
    assert re.fullmatch("[0-9]{3}-(ab|cd)", written(texts[1]))
    assert written(texts[2]) in ("yes", 'no "thanks"', "e\u00e9")
    assert re.fullmatch("<[a-c][a-c]>|none", written(texts[3]))
    alone = text("The moon", 9, ignore_eos=True, **sampling)
    assert write(engine, alone) == [free.tokens]


def test_the_form_holds_with_penalties_biases_and_without_an_end() -> None:
    texts = [
        formed("a", {"ignore_eos": True}, json=SCHEMA),
        formed("a", {"min_tokens": 60}, json=SCHEMA),
        formed(
            "a", {"repetition_penalty": 40.0, "presence_penalty": 2.0, "logit_bias": {9: 100.0}}, json=SCHEMA
        ),
    ]
    write(engine_of("qwen2"), *texts)
    for each in texts:
        assert each.finish == "stop"
        jsonschema.validate(json.loads(written(each)), SCHEMA)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"json": {"type": "zzz"}}, "'structured_outputs.json' cannot be used: Invalid type: zzz"),
        ({"json": "{"}, "'structured_outputs.json' cannot be used: unexpected end of data"),
        ({"json": {"if": {}}}, 'cannot be used: Unimplemented keys: ["if"]'),
        ({"regex": "("}, "'structured_outputs.regex' cannot be used: .*unclosed group"),
        ({"grammar": "root ::= foo"}, "'structured_outputs.grammar' cannot be used: .*Rule 'foo' not found"),
    ],
)
def test_a_form_that_cannot_be_compiled_is_refused(form: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        engine_of("llama").check(formed("a", {}, **form).asked.sampling)
    assert re.search(told.replace("[", r"\["), caught.value.message)


@pytest.mark.parametrize("name", ["color", "int32", "password", "phone", "x"])
def test_a_format_that_nobody_checks_says_nothing(name: str) -> None:
    schema = {"type": "array", "items": {"type": "string", "format": name, "maxLength": 3}, "maxItems": 2}
    asked = formed("a", {"temperature": 1.0, "seed": 3}, json=schema)
    write(engine_of("llama"), asked)
    jsonschema.validate(json.loads(written(asked)), schema)


def test_formats_that_are_known_hold() -> None:
    asked = formed("a", {"temperature": 1.0, "seed": 3}, json={"type": "string", "format": "ipv4"})
    write(engine_of("llama"), asked)
    assert re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", json.loads(written(asked)))


def accepts(structure: Structure, text: str) -> bool:
    matcher = Grammars(tokenizer(), ENDS).matcher(structure)
    for token in tokenizer().encode(text, add_special_tokens=False):
        if not torch.isfinite(matcher.mask(torch.zeros(len(tokenizer())))[token]):
            return False
        matcher.take(token)
    return True


@pytest.mark.parametrize(
    ("regex", "right", "wrong"),
    [
        (r"\d+", "12", "١٢"),
        (r"[\d]", "1", "١"),
        (r"\D", "١", "1"),
        (r"[^\d]", "١", "1"),
        (r"\w", "a", "é"),
        (r"\W", "é", "a"),
        (r"\\d", r"\d", "1"),
    ],
)
def test_digits_and_letters_of_regular_expressions_are_those_of_ascii(
    regex: str, right: str, wrong: str
) -> None:
    structure = read_structure("structured_outputs", {"regex": regex})
    assert accepts(structure, right)
    assert not accepts(structure, wrong)


def test_logits_beyond_the_vocabulary_are_never_chosen() -> None:
    structure = read_response_format({"type": "json_object"})
    assert structure is not None
    scores = Grammars(tokenizer(), ENDS).matcher(structure).mask(torch.zeros(len(tokenizer()) + 40))
    assert torch.isfinite(scores).sum() == 1  # a brace


def test_a_tokenizer_of_another_kind_is_told() -> None:
    structure = read_response_format({"type": "json_object"})
    assert structure is not None
    with pytest.raises(UnsupportedError, match="not possible with this tokenizer: Only fast tokenizers"):
        Grammars(object(), ENDS).matcher(structure)


def test_a_form_that_takes_too_long_to_compile_is_refused_and_remembered() -> None:
    structure = read_structure("structured_outputs", {"regex": "a"})
    slow = Grammars(tokenizer(), ENDS, most_s=0)
    assert not slow.knows(structure)
    for _ in range(2):
        with pytest.raises(
            InvalidArgumentError, match=r"compiling it took 0\.\d s, and at most 0 s are allowed"
        ):
            slow.matcher(structure)
    assert slow.knows(structure)


def test_a_text_whose_form_becomes_too_complex_does_not_count_as_complete() -> None:
    matcher = Grammars(tokenizer(), ENDS).matcher(read_structure("structured_outputs", {"regex": "ab"}))
    with pytest.raises(InvalidArgumentError, match=r"'structured_outputs\.regex' cannot be used"):
        matcher.take(tokenizer().encode("x", add_special_tokens=False)[0])
