"""Requests to load a model."""

import json
from typing import Any

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.sagemaker.load_request import LoadRequest, read_load_request

LIMIT = 4096
RIGHT = {"model_name": "abc", "url": "/opt/ml/models/abc/model"}


def read(document: Any, alias: str | None = None) -> LoadRequest:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {} if alias is None else {"x-amzn-sagemaker-target-model": alias}
    return read_load_request(memoryview(body), headers, LIMIT)


def refusal(document: Any, alias: str | None = None) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read(document, alias)
    return caught.value.message


def test_key_place_and_alias() -> None:
    assert read(RIGHT) == ("abc", "/opt/ml/models/abc/model", "")
    assert read({**RIGHT, "more": [1]}, "company_a/m.tar.gz").alias == "company_a/m.tar.gz"


def test_keys_are_opaque() -> None:
    for key in ("a/b", "ö", " ", "..", "a" * 1000, "😀"):
        assert read({**RIGHT, "model_name": key}).key == key


def test_an_alias_is_utf_8() -> None:
    assert read(RIGHT, "größe.tar.gz".encode().decode("latin-1")).alias == "größe.tar.gz"
    assert refusal(RIGHT, "gr\xf6") == "X-Amzn-SageMaker-Target-Model is not UTF-8"


@pytest.mark.parametrize("alias", ["a\tb", "a" * 1025])
def test_an_alias_is_short_and_printable(alias: str) -> None:
    assert refusal(RIGHT, alias) == (
        "X-Amzn-SageMaker-Target-Model must be at most 1024 printable characters"
    )


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"", "lacks 'model_name'; expected {\"model_name\": "),
        ([RIGHT], "the request to load a model is not a JSON object"),
        ("text", "the request to load a model is not a JSON object"),
        ({"url": "/x"}, "lacks 'model_name'"),
        ({"model_name": "abc"}, "lacks 'url'"),
        ({**RIGHT, "model_name": 7}, "'model_name' must be a string"),
        ({**RIGHT, "url": None}, "'url' must be a string"),
        ({**RIGHT, "url": ""}, "'url' must be a string, not empty"),
        ({**RIGHT, "url": "/a\0b"}, "and without null characters"),
        (
            b'{"model_name": "\\ud800", "url": "/x", "other": NaN}',
            "The surrogate pair in string is invalid. at 16",
        ),
        (b"{", "failed to parse the request JSON buffer"),
        (b"x" * (LIMIT + 1), "exceeds the maximum allowed input size. It is 4096 bytes"),
    ],
)
def test_what_is_wrong_is_told(document: Any, text: str) -> None:
    assert text in refusal(document)
