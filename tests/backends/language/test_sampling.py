"""What `sampling_parameters` may say."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.backends.language.sampling import Sampling, choose_known, read_sampling
from halimede.core.errors import InvalidArgumentError

DEFAULTS = Sampling(temperature=0.5, top_k=7)


def read(**given: Any) -> Sampling:
    return read_sampling(json.dumps(given), DEFAULTS)


def test_fields_have_the_names_of_vllm() -> None:
    sampling = read(
        temperature=0, top_p=0.9, min_p=0.1, repetition_penalty=1.1, frequency_penalty=-1, presence_penalty=2,
        logit_bias={"5": -100}, seed=3, max_tokens=10, min_tokens=2, stop="end", stop_token_ids=[4],
        ignore_eos=True, n=1, include_stop_str_in_output=True, skip_special_tokens=False, allowed_token_ids=[5],
        bad_words=["x"], spaces_between_special_tokens=True,
    )  # fmt: skip
    assert sampling == Sampling(
        0, 0.9, 7, 0.1, 1.1, -1, 2, {5: -100}, 3, 10, 2, ("end",), (4,), True, True, False, (5,), ("x",),
    )  # fmt: skip


def test_numbers_may_be_texts_as_in_the_samples_of_the_vllm_backend() -> None:
    assert read(temperature="0.1", top_p="0.95", max_tokens="100") == Sampling(0.1, 0.95, 7, max_tokens=100)


@pytest.mark.parametrize("number", [1e-320, "1e-320", 5e-324, 9.99e-6])
def test_temperatures_by_which_logits_overflow_mean_zero(number: Any) -> None:
    assert read(temperature=number).temperature == 0
    assert read(temperature=1e-5).temperature == 1e-5


def test_null_and_all_tokens_ask_for_nothing() -> None:
    assert read(temperature=None, stop=None, top_k=-1) == Sampling(0.5, top_k=0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"temperature": -1}, "'temperature' must be a number from 0 to 100, got '-1'"),
        ({"temperature": True}, "'temperature' must be a number"),
        ({"temperature": "hot"}, "'temperature' must be a number"),
        ({"temperature": "nan"}, "'temperature' must be a number"),
        ({"top_k": 1.5}, "'top_k' must be a whole number from -1"),
        ({"max_tokens": -1}, "'max_tokens' must be a whole number from 0"),
        ({"stop": [""]}, "'stop' must be a string or a list"),
        ({"stop": 3}, "'stop' must be a string or a list"),
        ({"stop_token_ids": 3}, "'stop_token_ids' must be a list of at most 1024 token ids"),
        ({"logit_bias": {"a": 1}}, "'logit_bias' must be a whole number"),
        ({"logit_bias": [1]}, "'logit_bias' must be an object"),
        ({"logit_bias": {"5" * 5000: 1}}, "'logit_bias' must be a whole number from 0"),
        ({"logit_bias": {str(token): 1 for token in range(16_385)}}, "an object of at most 16384 token ids"),
        ({"temperature": "1" * 5000}, "'temperature' must be a number from 0 to 100"),
        ({"seed": "1" * 5000}, "'seed' must be a whole number"),
        ({"stop": ["x" * 513]}, "each of 1 to 512 characters"),
        ({"stop_token_ids": [5] * 1025}, "'stop_token_ids' must be a list of at most 1024 token ids"),
        ({"allowed_token_ids": [5] * 262_145}, "'allowed_token_ids' must be a list of at most 262144"),
        ({"ignore_eos": 1}, "'ignore_eos' must be true or false"),
        ({"n": 2}, "'n' must be 1"),
        ({"skip_special_tokens": "no"}, "'skip_special_tokens' must be true or false"),
        ({"spaces_between_special_tokens": False}, "'spaces_between_special_tokens' must be true"),
        ({"allowed_token_ids": [-1]}, "'allowed_token_ids' must be a whole number from 0"),
        ({"bad_words": [5]}, "'bad_words' must be a string or a list"),
        (
            {"beam_width": 2},
            "unknown field 'beam_width'; known are allowed_token_ids, bad_words, frequency_penalty, guided_decoding",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(**given)
    assert told in caught.value.message


@pytest.mark.parametrize(("text", "told"), [(b"{", "is not JSON"), (b"[]", "must be a JSON object")])
def test_it_is_a_json_object(text: bytes, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        read_sampling(text, DEFAULTS)


def test_among_other_parameters_unknown_ones_are_ignored() -> None:
    assert choose_known({"traceparent": "x", "seed": 4}, DEFAULTS) == Sampling(0.5, top_k=7, seed=4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*Sampling.__slots__, "n"])


@given(st.dictionaries(NAMES, JSON))
def test_any_values_are_read_or_refused(given: dict[str, Any]) -> None:
    try:
        sampling = choose_known(given, DEFAULTS)
    except InvalidArgumentError:
        return
    assert 0 <= sampling.temperature <= 100
    assert all(isinstance(word, str) for word in sampling.stop)
