"""A text on its way through the model: how much of its prompt was read, and what is kept of it."""

from typing import Any

from halimede.backends.language.generation import Generation
from halimede.backends.transformers.sampler import Sampler


class Reading:
    """A text under way.

    Attributes:
        generation: the text.
        sampler: chooses its tokens.
        cache: what is kept of the tokens that were read, None for nothing.
        read: how many tokens were read.
    """

    __slots__ = ("cache", "generation", "read", "sampler")

    def __init__(self, generation: Generation, sampler: Sampler, cache: Any | None) -> None:
        self.generation = generation
        self.sampler = sampler
        self.cache = cache
        self.read = 0

    @property
    def unread(self) -> int:
        """Tokens of the prompt that are to be read."""
        return len(self.generation.prompt) - self.read
