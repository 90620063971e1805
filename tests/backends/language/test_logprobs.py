"""Log probabilities of tokens as clients expect them."""

from halimede.backends.language.logprobs import LogprobForm, TokenLogprob, TokenRecord, logprobs_document

PIECES = {1: b"a", 2: " b\N{EURO SIGN}".encode(), 3: b"\xe2\x82", 9: b"<|end|>"}
RECORDS = [
    TokenRecord(2, 0, False, TokenLogprob(-2.0, 3, ((1, -0.25), (9, -1.0)))),
    TokenRecord(3, 3, False, TokenLogprob(-0.5, 1, ((3, -0.5), (1, -1.5)))),
    TokenRecord(9, 3, True, TokenLogprob(-0.125, 1, ((9, -0.125), (1, -9.0)))),
]


def test_chat_has_a_list_of_tokens_with_their_bytes() -> None:
    document = logprobs_document(LogprobForm.CHAT, RECORDS, PIECES.__getitem__)
    first, second = document["content"]
    assert first == {
        "token": " b\N{EURO SIGN}",
        "logprob": -2.0,
        "bytes": [32, 98, 226, 130, 172],
        "top_logprobs": [
            {"token": "a", "logprob": -0.25, "bytes": [97]},
            {"token": "<|end|>", "logprob": -1.0, "bytes": list(b"<|end|>")},
        ],
    }
    assert (second["token"], second["bytes"]) == ("\\xe2\\x82", [226, 130])


def test_completions_have_parallel_lists_and_the_chosen_token_among_the_alternatives() -> None:
    assert logprobs_document(LogprobForm.COMPLETIONS, RECORDS, PIECES.__getitem__) == {
        "tokens": [" b\N{EURO SIGN}", "\\xe2\\x82"],
        "token_logprobs": [-2.0, -0.5],
        "top_logprobs": [
            {" b\N{EURO SIGN}": -2.0, "a": -0.25, "<|end|>": -1.0},
            {"\\xe2\\x82": -0.5, "a": -1.5},
        ],
        "text_offset": [0, 3],
    }


def test_the_form_of_vllm_has_ranks_and_the_token_that_ends_the_text() -> None:
    first, _, last = logprobs_document(LogprobForm.VLLM, RECORDS, PIECES.__getitem__)
    assert first == {
        "2": {"logprob": -2.0, "rank": 3, "decoded_token": " b\N{EURO SIGN}"},
        "1": {"logprob": -0.25, "rank": 1, "decoded_token": "a"},
        "9": {"logprob": -1.0, "rank": 2, "decoded_token": "<|end|>"},
    }
    assert list(last) == ["9", "1"]


def test_a_rank_that_is_not_known_is_null() -> None:
    record = TokenRecord(1, 0, False, TokenLogprob(-1.0))
    [told] = logprobs_document(LogprobForm.VLLM, [record], PIECES.__getitem__)
    assert told == {"1": {"logprob": -1.0, "rank": None, "decoded_token": "a"}}
