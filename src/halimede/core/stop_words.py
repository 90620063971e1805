"""Stop words in a text that comes piece by piece."""

from collections.abc import Sequence


class StopWords:
    """Lets a text through up to the first stop word.

    What may be the beginning of a stop word is held back until more of the text is there.

    Attributes:
        found: a stop word was found; nothing more comes.
        word: the one that was found, "" before.

    Args:
        words: the stop words.
        shown: the text ends after the stop word, not before it.
    """

    __slots__ = ("_held", "_shown", "_words", "found", "word")

    def __init__(self, words: Sequence[str], *, shown: bool = False) -> None:
        self._words = words
        self._shown = shown
        self._held = ""
        self.found = False
        self.word = ""

    def take(self, piece: str) -> str:
        """What may be shown now that this piece has come."""
        if self.found:
            return ""
        if not self._words:
            return piece
        text = self._held + piece
        places = [(place, len(word)) for word in self._words if (place := text.find(word)) >= 0]
        if places:
            self.found = True
            self._held = ""
            place, length = min(places)
            self.word = text[place : place + length]
            return text[: place + length * self._shown]
        held = max(_overlap(text, word) for word in self._words)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What was held back, once the text has ended."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """How many characters at the end of the text are the beginning of the word."""
    for length in range(min(len(word) - 1, len(text)), 0, -1):
        if text.endswith(word[:length]):
            return length
    return 0
