"""The Content-Type that says where the JSON ends."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput

from halimede.codec.sagemaker_media_type import BINARY, json_length, label, read_length
from halimede.core.errors import InvalidArgumentError

INT32 = range(-(1 << 31), 1 << 31)


def refusal(content_type: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        json_length({"content-type": content_type})
    return caught.value.message


def test_without_content_type_all_is_json() -> None:
    assert json_length({}) is None


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/octet-stream",
        "text/plain; charset=utf-8",
        "application/vnd.sagemaker-triton.binary+json",
        "application/vnd.sagemaker-triton.binary+json;charset=utf-8",
        "application/vnd.sagemaker-triton.binary+json-header-size=4",
        "",
    ],
)
def test_another_media_type_says_nothing(content_type: str) -> None:
    assert json_length({"content-type": content_type}) is None


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("0", "0"),
        ("17", "17"),
        ("0017", "17"),
        ("+17", "17"),
        (" 17", "17"),
        ("17abc", "17"),
        ("17; charset=utf-8", "17"),
        ("0x10", "0"),
        ("-0", "0"),
        ("-17", "-17"),
        ("2147483647", "2147483647"),
        ("-2147483648", "-2147483648"),
        ("0" * 10_000 + "5", "5"),
        ('"17"', "17"),
    ],
)
def test_the_number_is_read_as_c_does(text: str, digits: str) -> None:
    assert json_length({"content-type": BINARY + text}) == digits


@pytest.mark.parametrize(
    "content_type",
    [
        "application/vnd.sagemaker-triton.binary+json; json-header-size=17",
        "application/vnd.sagemaker-triton.binary+json ;json-header-size=17",
        "Application/Vnd.SageMaker-Triton.Binary+JSON;JSON-Header-Size=17",
        'application/vnd.sagemaker-triton.binary+json; charset=utf-8; json-header-size="17"',
    ],
)
def test_letter_case_spaces_and_quotes_do_not_matter(content_type: str) -> None:
    assert json_length({"content-type": content_type}) == "17"


def test_the_length_that_tritonclient_returns_without_bytes_means_that_all_is_json() -> None:
    tensor = InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array(["a"], object), binary_data=False)
    _, length = InferenceServerClient.generate_request_body([tensor])
    assert json_length({"content-type": f"{BINARY}{length}"}) is None


@pytest.mark.parametrize(
    "text", ["", "x", "-", "+", "- 1", "²", "٣", "2147483648", "-2147483649", "9" * 10_000]
)
def test_what_is_no_32_bit_number_is_refused(text: str) -> None:
    assert refusal(BINARY + text).startswith(f"Unable to parse inference header size, got: {text[:5000]}")


def test_the_media_type_must_stand_first() -> None:
    text = f"text/plain, {BINARY}4"
    assert refusal(text) == f"expect MIME type for binary data starts with '{BINARY}', got: {text}"


@given(st.text(st.characters(max_codepoint=255), max_size=40))
@example("\x1f0")
@example("None")
def test_any_text_after_the_media_type_is_a_number_or_refused(text: str) -> None:
    expected = re.match(r"[ \t\n\v\f\r]*(?:\"[ \t\n\v\f\r]*(?=[^\"]*\"))?([+-]?[0-9]+)", text)
    if text.partition(";")[0].strip(' \t"') == "None":
        assert read_length(BINARY + text) is None
    elif expected is None or int(expected[1]) not in INT32:
        refusal(BINARY + text)
    else:
        assert read_length(BINARY + text) == str(int(expected[1]))


@given(st.integers(0, (1 << 31) - 1))
def test_labels_of_responses_are_understood(size: int) -> None:
    content_type, headers = label(size)
    assert (read_length(content_type), headers) == (str(size), ())


@given(st.text(st.characters(max_codepoint=255)))
def test_any_other_text_says_nothing(text: str) -> None:
    assert read_length(text) is None
