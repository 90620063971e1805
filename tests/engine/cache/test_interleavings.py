"""Whatever happens in whatever order: each request has one response, which is one to an equal request."""

from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.core.errors import CancelledError, InternalError, UnavailableError
from halimede.core.requests import InferRequest
from halimede.engine.cache.local import LocalCache
from tests.engine.cache.bench import Bench, SlowCache

CONTENTS = 3
"""Different requests."""

events = st.one_of(
    st.tuples(st.just("send"), st.integers(0, CONTENTS - 1)),
    st.tuples(st.sampled_from(["finish", "fail", "cancel"]), st.integers(0, 20)),
    st.tuples(st.sampled_from(["look up", "full", "empty", "close"]), st.just(0)),
)


def value(identifier: str) -> float:
    """What the request holds, and what the model makes of it."""
    return float(identifier.partition("-")[0])


class Story:
    """A bench and the requests that were sent."""

    def __init__(self, cache: SlowCache | None, size: int) -> None:
        self.cache = cache
        self.bench = Bench(cache, size)
        self.requests: dict[str, InferRequest] = {}

    def take(self, event: str, number: int) -> None:
        """Let the event happen, if there is anything for it to happen to."""
        bench = self.bench
        computing = sorted(bench.computing)
        if event == "send":
            identifier = f"{number}-{len(self.requests)}"
            self.requests[identifier] = bench.send(identifier, number)
        elif event in ("finish", "fail") and computing:
            self.end(computing[number % len(computing)], well=event == "finish")
        elif event == "cancel" and self.requests:
            identifier = sorted(self.requests)[number % len(self.requests)]
            if identifier not in bench.answers:
                self.requests[identifier].cancel()
        elif event == "look up" and self.cache is not None:
            self.cache.answer()
        elif event in ("full", "empty"):
            bench.full = event == "full"
        elif event == "close":
            bench.version.close()

    def end(self, identifier: str, *, well: bool) -> None:
        """The model answers."""
        if well:
            self.bench.finish(identifier, value(identifier))
        else:
            self.bench.fail(identifier)

    def finish(self) -> None:
        """Let all that is under way come to its end."""
        while len(self.bench.answers) < len(self.requests):
            self.take("look up", 0)
            for identifier in sorted(self.bench.computing):
                self.end(identifier, well=True)
        if self.cache is not None:
            self.cache.answer()


@settings(max_examples=100, deadline=None)
@given(st.lists(events, max_size=40), st.booleans(), st.sampled_from([100, 1_200, 100_000]))
def test_each_request_has_one_response_and_the_right_one(
    story: list[tuple[str, int]], slow: bool, size: int
) -> None:
    told = Story(SlowCache() if slow else None, size)
    for event, number in story:
        told.take(event, number)
    told.finish()
    bench = told.bench
    for identifier in told.requests:
        answer = bench.answers[identifier]
        assert answer in ([value(identifier)], CancelledError, InternalError, UnavailableError)
        if answer is CancelledError:
            assert told.requests[identifier].cancelled
    assert bench.inflight == 0
    assert bench.version._flights == {}  # noqa: SLF001 - what is left is seen only inside
    if isinstance(bench.cache, LocalCache):
        entries = bench.cache._entries  # noqa: SLF001 - what is left is seen only inside
        assert bench.cache.used == sum(entry.size for entry in entries.values()) <= size
        assert bench.version._keys == set(entries)  # noqa: SLF001 - what is left is seen only inside
    counts = bench.statistics
    assert counts.cache_hit.count + counts.cache_miss.count == sum(
        isinstance(answer, list) for answer in bench.answers.values()
    )
