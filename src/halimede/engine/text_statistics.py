"""What is counted of the texts that a language model writes."""

from halimede.backends.text_counts import GAP_BOUNDS_S, TextCounts
from halimede.engine.histogram import Histogram

FIRST_TOKEN_BOUNDS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip


class TextStatistics:
    """All counts of the texts of one model version.

    Attributes:
        prompt_tokens: tokens of prompts that were read.
        tokens: tokens that were written.
        first_token_s: times from receipt of a request to its first token.
        gap_s: times between the tokens of a text.
    """

    __slots__ = ("_instances", "first_token_s", "gap_s", "prompt_tokens", "tokens")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.tokens = 0
        self.first_token_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self.gap_s = Histogram(GAP_BOUNDS_S)
        self._instances: dict[str, tuple[int, float | None]] = {}

    @property
    def running(self) -> int:
        """Texts that are being written."""
        return sum(running for running, _ in self._instances.values())

    @property
    def cache_usage(self) -> float | None:
        """Share of the cache for keys and values in use, of the instance with the fullest; None if none says it."""
        return max((usage for _, usage in self._instances.values() if usage is not None), default=None)

    def add(self, instance: str, counts: TextCounts) -> None:
        """Add a report of an instance.

        Args:
            instance: its name.
            counts: the report; of the first tokens, their requests' times of receipt are known.
        """
        self._instances[instance] = (counts.running, counts.cache_usage)
        self.prompt_tokens += counts.prompt_tokens
        self.tokens += counts.tokens
        self.gap_s.merge(counts.gaps, counts.gaps_ns / 1e9)
        for request, at_ns in counts.first_tokens:
            self.first_token_s.observe((at_ns - request.received_ns) / 1e9)

    def forget(self, instance: str) -> None:
        """The process of an instance has ended."""
        self._instances.pop(instance, None)
