"""How texts that have been begun go on, by what the model can do: see `Ability`."""

from collections.abc import Collection, Iterator
from typing import Protocol

from torch import Tensor

from halimede.backends.transformers.forward import Forward
from halimede.backends.transformers.reading import Reading
from halimede.backends.transformers.rows import MakeCache, Rows


class Writer(Protocol):
    """Gives texts that were read their next tokens."""

    def join(self, text: Reading) -> None:
        """Take a text that was read, and that has its first token."""

    def step(self) -> Iterator[tuple[Reading, Tensor]]:
        """Each text, and the logits after its last token, shape [vocabulary]."""

    def keep(self, texts: Collection[Reading]) -> None:
        """Forget all texts but these."""


class TogetherWriter:
    """All texts in one pass.

    Args:
        forward: calls the model.
        make_cache: makes an empty cache of plain keys and values.
    """

    def __init__(self, forward: Forward, make_cache: MakeCache) -> None:
        self._forward = forward
        self._rows = Rows(make_cache)
        self._texts: list[Reading] = []

    def join(self, text: Reading) -> None:
        """Add a row."""
        self._rows.join(text.cache, text.read)
        text.cache = None
        self._texts.append(text)

    def step(self) -> Iterator[tuple[Reading, Tensor]]:
        """One pass for all."""
        if self._texts:
            logits = self._rows.step(self._forward, [text.generation.tokens[-1] for text in self._texts])
            yield from zip(self._texts, logits, strict=True)

    def keep(self, texts: Collection[Reading]) -> None:
        """Forget all rows but theirs."""
        self._rows.keep([row for row, text in enumerate(self._texts) if text in texts])
        self._texts = [text for text in self._texts if text in texts]


class SingleWriter:
    """Each text by a pass of its own.

    Args:
        forward: calls the model.
        keeps: texts have caches; otherwise each pass reads the whole text.
    """

    def __init__(self, forward: Forward, *, keeps: bool) -> None:
        self._forward = forward
        self._keeps = keeps
        self._texts: list[Reading] = []

    def join(self, text: Reading) -> None:
        """Add a text."""
        self._texts.append(text)

    def step(self) -> Iterator[tuple[Reading, Tensor]]:
        """One pass for each."""
        for text in self._texts:
            generation = text.generation
            if self._keeps:
                logits = self._forward.read(generation.tokens[-1:], text.read, text.cache)
                text.read += 1
            else:
                logits = self._forward.read(generation.prompt + generation.tokens, 0, None)
            yield text, logits[0]

    def keep(self, texts: Collection[Reading]) -> None:
        """Forget all texts but these."""
        self._texts = [text for text in self._texts if text in texts]
