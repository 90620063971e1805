"""A measurement: levels of load one after the other, each until its figures are stable."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from halimede.bench.clients.lane import now
from halimede.bench.errors import BenchError
from halimede.bench.histogram import Histogram
from halimede.bench.load import DUE, END, ERROR, Load, Records, started
from halimede.bench.plan import Level, Plan
from halimede.bench.results import LevelResult
from halimede.bench.server_side import Statistics, between
from halimede.bench.windows import Collector, Window, need_success, stable

LOOK_EVERY_S = 0.5
CONNECT_WITHIN_S = 10
COUNTING_WINDOWS = 3
"""As many windows as perf_analyzer has to be stable, and count."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How long is measured.

    Attributes:
        window_s: length of a window.
        window_requests: a window ends when so many requests were answered; 0: with its time.
        windows: at most so many.
        tolerance: windows are stable if they differ from their average by no more than this share.
        warm_up_s: load before the first window.
        percentile: the latency that has to be stable; None for the mean.
        rows: rows of a request.
    """

    window_s: float = 5.0
    window_requests: int = 0
    windows: int = 10
    tolerance: float = 0.10
    warm_up_s: float = 1.0
    percentile: float | None = None
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """What was seen in the last half second.

    Attributes:
        level: the level's name.
        window: its number from 1 on; 0 in the warm-up.
        rate: requests a second that succeeded.
        p50_ms, p99_ms: their latency.
        errors: requests that failed.
        under_way: requests that are being answered.
    """

    level: str
    window: int
    rate: float
    p50_ms: float
    p99_ms: float
    errors: int
    under_way: int


Show = Callable[[Progress], None]
Ask = Callable[[], Statistics]


def measure(
    plan: Plan, levels: Iterator[Level] | Sequence[Level], measuring: Measuring, ask: Ask, show: Show
) -> Iterator[LevelResult]:
    """The results of the levels, as they come. `ask` brings the server's statistics.

    Raises:
        BenchError: all requests of a window failed, or none was answered; or what sends the load fails.
    """
    with started(plan) as load:
        for level in levels:
            yield _Measurement(load, plan, level, measuring, ask, show).run()


class _Measurement:
    """One level."""

    def __init__(
        self, load: Load, plan: Plan, level: Level, measuring: Measuring, ask: Ask, show: Show
    ) -> None:
        self._load = load
        self._plan = plan
        self._level = level
        self._measuring = measuring
        self._ask = ask
        self._show = show
        self._collector = Collector(load)

    def run(self) -> LevelResult:
        """Its result."""
        if self._level.requests:
            return self._counted()
        self._load.set(self._level)
        self._await_connections()
        self._pass(0, now() + round(self._measuring.warm_up_s * 1e9))
        windows: list[Window] = []
        marks = [(now(), self._ask(), self._load.cpu_s)]
        is_stable = False
        while len(windows) < self._measuring.windows and not is_stable:
            end = self._end_of_window(len(windows) + 1, marks[-1][0])
            windows.append(self._collector.window(marks[-1][0], end))
            marks.append((end, self._ask(), self._load.cpu_s))
            need_success(windows[-1])
            is_stable = len(windows) >= COUNTING_WINDOWS and stable(
                windows[-COUNTING_WINDOWS:], self._measuring.tolerance, self._measuring.percentile
            )
        counting = windows[-COUNTING_WINDOWS:]
        return self._result(counting, marks[-len(counting) - 1], marks[-1], is_stable=is_stable)

    def _await_connections(self) -> None:
        """Return when all connections of a closed loop are open, or one cannot be opened."""
        deadline = now() + CONNECT_WITHIN_S * 1_000_000_000
        failed = False
        while self._load.connections < self._level.concurrency and not failed and now() < deadline:
            records = self._look(0)
            failed = bool((records.requests[:, ERROR] != 0).any())

    def _counted(self) -> LevelResult:
        """The result of a level that has a number of requests."""
        before = self._ask()
        start = now()
        self._load.set(self._level)
        answered = 0
        while not (self._load.finished and answered >= self._level.requests):
            answered += len(self._look(1).requests)
        end = max(now() if not answered else self._collector.last_end + 1, start + 1)
        window = self._collector.window(start, end)
        need_success(window)
        cpu = [0.0] * self._plan.processes
        return self._result([window], (start, before, cpu), (end, self._ask(), cpu), is_stable=True)

    def _end_of_window(self, number: int, start: int) -> int:
        """When the window has ended (ns); everything that was answered before has been told."""
        measuring = self._measuring
        if not measuring.window_requests:
            end = start + round(measuring.window_s * 1e9)
            self._pass(number, end)
            return end
        answered = 0
        while answered < measuring.window_requests:
            answered += len(self._look(number).requests)
            if now() - start > max(60.0, 20 * measuring.window_s) * 1e9:
                raise BenchError(
                    f"{answered} of {measuring.window_requests} requests of a window were answered within "
                    f"{(now() - start) / 1e9:.0f} s: ask for fewer with --measurement-request-count"
                )
        end = now()
        self._load.receive_until(end)
        return end

    def _pass(self, number: int, end: int) -> None:
        while (left := (end - now()) / 1e9) > 0:
            self._look(number, min(LOOK_EVERY_S, left))
        self._load.receive_until(end)

    def _look(self, number: int, seconds: float = 0.1) -> Records:
        began = now()
        self._load.receive(seconds)
        records = self._collector.collect()
        good = records.requests[records.requests[:, ERROR] == 0]
        latency = Histogram.of(good[:, END] - good[:, DUE])
        self._show(
            Progress(
                self._level.name,
                number,
                len(good) / ((now() - began) / 1e9),
                latency.percentile(50) / 1e6,
                latency.percentile(99) / 1e6,
                len(records.requests) - len(good),
                self._load.under_way,
            )
        )
        return records

    def _result(
        self,
        windows: Sequence[Window],
        before: tuple[int, Statistics, list[float]],
        after: tuple[int, Statistics, list[float]],
        *,
        is_stable: bool,
    ) -> LevelResult:
        errors: Counter[str] = Counter()
        for window in windows:
            errors.update(window.errors)
        if not any(window.latency.count for window in windows):
            raise BenchError(
                f"No request was answered within {sum(window.seconds for window in windows):g} s: "
                "give longer windows with --measurement-interval"
            )
        seconds = (after[0] - before[0]) / 1e9
        busy = [(late - early) / seconds for early, late in zip(before[2], after[2], strict=False)]
        return LevelResult(
            self._level.name,
            self._level.figure,
            self._level.arrivals is not None,
            tuple(block for window in windows for block in window.blocks),
            is_stable,
            Histogram.merged(window.latency for window in windows),
            Histogram.merged(window.service for window in windows),
            Histogram.merged(window.first for window in windows),
            Histogram.merged(window.gaps for window in windows),
            dict(errors),
            between(before[1], after[1]),
            max(busy, default=0.0),
            self._load.waiting,
            self._measuring.rows,
        )
