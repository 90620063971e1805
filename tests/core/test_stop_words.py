"""Stop words in texts that come piece by piece."""

from hypothesis import given
from hypothesis import strategies as st

from halimede.core.stop_words import StopWords

TEXTS = st.text("abc", max_size=30)


def shown(words: list[str], pieces: list[str]) -> str:
    stop = StopWords(words)
    return "".join([stop.take(piece) for piece in pieces]) + stop.end()


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.lists(TEXTS, max_size=8))
def test_pieces_make_no_difference(words: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    first = min([place for word in words if (place := text.find(word)) >= 0], default=len(text))
    result = shown(words, pieces)
    if first == len(text):
        assert result == text
    else:  # a longer word that begins earlier may still be on its way when a shorter one is found
        assert text.startswith(result)
        assert any(text[len(result) :].startswith(word) for word in words)


def test_the_text_may_end_after_the_stop_word() -> None:
    stop = StopWords(["END", "other"], shown=True)
    assert [stop.take(piece) for piece in ("oneE", "ND more", "other")] == ["one", "END", ""]


def test_text_is_held_back_only_while_it_may_be_a_stop_word() -> None:
    stop = StopWords(["END"])
    assert [stop.take(piece) for piece in ("oneE", "N", "x", "E", "ND", "more")] == [
        "one",
        "",
        "ENx",
        "",
        "",
        "",
    ]
    assert stop.found
    assert stop.end() == ""
