"""A bracket that is missing is told by the list or message that it would close."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.config.brackets import bracket_fault
from halimede.config.parse import ConfigTextError, parse_text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'name: "m"\ninput [\n  { name: "a" dims: [ 1 ] }\noutput [ { name: "b" dims: [ 1 ] } ]\n',
            "4, column 1: expected \",\"; the list 'input' that begins in line 2 is not closed; its ']' is missing",
        ),
        (
            'input [\n  { name: "a" dims: [ 1, 2 }\n]\n',
            "the list 'dims' that begins in line 2 is not closed; its ']' is missing",
        ),
        (
            'input [\n  { name: "a" dims: [ 1, 2 ]\n]\n',
            "an element of the list 'input' that begins in line 2 is not closed; its '}' is missing",
        ),
        (
            "dynamic_batching {\n  max_queue_delay_microseconds: 100\n",
            "the message 'dynamic_batching' that begins in line 1 is not closed; its '}' is missing",
        ),
        (
            'input {\n  name: "a"\n\noutput { name: "b" }\n',
            "the message 'input' that begins in line 1 is not closed; its '}' is missing",
        ),
        ('input [ { name: "a" } ]\n]\n', "the ']' in line 2 closes nothing"),
        (
            'input [ # ]\n  { name: "]" }\n',
            "the list 'input' that begins in line 1 is not closed; its ']' is missing",
        ),
        ("input <\n", "the message 'input' that begins in line 1 is not closed; its '>' is missing"),
    ],
)
def test_the_unclosed_list_is_named(text: str, fault: str) -> None:
    with pytest.raises(ConfigTextError) as error:
        parse_text(text, "config.pbtxt")
    assert error.value.message.endswith(fault)


@pytest.mark.parametrize(
    "text", ["input { dims: [ 1 2 ] }", 'nam: "m"', "input { dims: ] }".replace("]", "x")]
)
def test_other_errors_say_nothing_of_brackets(text: str) -> None:
    with pytest.raises(ConfigTextError) as error:
        parse_text(text, "config.pbtxt")
    assert "closed" not in error.value.message


@given(st.text("[]{}<>a\n\"'#:", max_size=40), st.integers(0, 50))
def test_any_text_is_looked_through(text: str, position: int) -> None:
    fault = bracket_fault(text, position)
    assert not fault or fault.endswith(("is missing", "closes nothing"))
