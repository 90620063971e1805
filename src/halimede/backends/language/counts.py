"""What an instance counts of its texts between two reports. A token costs it well under a microsecond."""

from bisect import bisect_left
from typing import Final

from halimede.backends.language.generation import Generation
from halimede.backends.text_counts import GAP_BOUNDS_S, TextCounts
from halimede.core.requests import InferRequest

REPORT_NS: Final = 100_000_000
"""Reports are so far apart, but for first tokens of texts that end."""

_GAP_BOUNDS_NS: Final = tuple(bound * 1e9 for bound in GAP_BOUNDS_S)


class TextCounter:
    """Counts for the next report. Used by one thread.

    Attributes:
        first_tokens: see `TextCounts`; not reported yet.
    """

    def __init__(self) -> None:
        self.first_tokens: list[tuple[InferRequest, int]] = []
        self._reported_ns = 0
        self._running = 0
        self._clear()

    def _clear(self) -> None:
        self.first_tokens = []
        self._prompt_tokens = 0
        self._tokens = 0
        self._gaps = [0] * (len(GAP_BOUNDS_S) + 1)
        self._gaps_ns = 0

    def count(self, generation: Generation, now: int) -> None:
        """Count what is new of a text. Tokens that come together share the time since those before."""
        total = len(generation.tokens)
        counted = generation.counted
        if total == counted:
            return
        new = total - counted
        self._tokens += new
        if counted:
            past = now - generation.counted_ns
            self._gaps[bisect_left(_GAP_BOUNDS_NS, past / new)] += new
            self._gaps_ns += past
        else:
            self.first_tokens.append((generation.request, now))
            self._prompt_tokens += len(generation.prompt)
        generation.counted = total
        generation.counted_ns = now

    def is_due(self, running: int, now: int) -> bool:
        """Whether something is to be reported now: it is time, or no more will come for a while."""
        if now - self._reported_ns >= REPORT_NS:
            return self._tokens > 0 or running != self._running
        return not running and (self._tokens > 0 or self._running > 0)

    def report(self, running: int, cache_usage: float | None, now: int) -> TextCounts:
        """What was counted since the report before."""
        report = TextCounts(
            self.first_tokens,
            running,
            cache_usage,
            self._prompt_tokens,
            self._tokens,
            self._gaps,
            self._gaps_ns,
        )
        self._running = running
        self._reported_ns = now
        self._clear()
        return report
