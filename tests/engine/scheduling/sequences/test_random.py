"""Random interleavings of what may befall sequences, against a small model of the rules."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.scheduling.sequences.bench import Bench, configuration

IDLE_US = 1000
ROWS = 2


@dataclass
class Row:
    """A request in the model."""

    name: str
    start: bool
    begun: bool = False


@dataclass(eq=False)
class Line:
    """A sequence in the model: its requests that wait, and when its last request came."""

    number: int
    waiting: list[Row] = field(default_factory=list)
    open: bool = True
    seen: int = 0
    expires: int = 0
    begun: bool = False
    placed: bool = False


@dataclass(eq=False)
class Place:
    """A slot in the model."""

    instance: int
    index: int
    line: Line | None = None
    row: Row | None = None
    of: Line | None = None
    freed: int = 0


class Rules:
    """The rules of sequences, followed step by step; nothing is clever here.

    Attributes:
        batches: of each instance, the rows of each batch.
        fates: name of a request → what became of it.
    """

    def __init__(self, instances: int, slots: int, direct: bool) -> None:
        self.direct = direct
        self.places = [Place(number, index) for number in range(instances) for index in range(slots)]
        for order, place in enumerate(self.places):
            place.freed = order
        self.freed = len(self.places)
        self.live: dict[int, Line] = {}
        self.lost: dict[int, int] = {}
        self.backlog: list[Line] = []
        self.queues: list[list[Place]] = [[] for _ in range(instances)]  # oldest: who waits for a batch
        self.running: list[list[Place] | None] = [None] * instances
        self.down = [False] * instances
        self.batches: list[list[list[str]]] = [[] for _ in range(instances)]
        self.fates: dict[str, str] = {}
        self.now = 0
        self.stopping = False

    # What befalls it

    def send(self, name: str, number: int, start: bool, end: bool, timeout: int) -> None:
        line = self.live.get(number)
        if start and self.stopping:
            self.fates[name] = "stopping"
            return
        if start:
            self.lost.pop(number, None)
        elif line is None:
            self.fates[name] = "lost" if number in self.lost else "no start"
            return
        if line is None:
            line = Line(number)
        line.seen = self.now
        self.live.pop(number, None)
        if end:
            line.open = False
        else:
            self.live[number] = line
        line.waiting.append(Row(name, start))
        if not line.placed:
            if len(line.waiting) == 1:
                self.backlog.append(line)
                self.place()
            if not line.placed and timeout:
                when = self.now + timeout
                line.expires = min(line.expires or when, when)
        self.settle()

    def cancel(self, name: str) -> None:
        for line in self.lines():
            if any(row.name == name for row in line.waiting):
                self.drop(line)
        for place in self.places:
            row, of = place.row, place.of
            if row is not None and of is not None and row.name == name and not row.begun:
                self.drop(of, place)
        self.settle()

    def drop(self, line: Line, place: Place | None = None) -> None:
        place = place or next((each for each in self.places if each.of is line and each.line is line), None)
        line.open = False
        if self.live.get(line.number) is line:
            del self.live[line.number]
        if place is not None and place.row is not None and not place.row.begun:
            self.fates[place.row.name] = "cancelled"
            place.row = place.of = None
            if place in self.queues[place.instance]:
                self.queues[place.instance].remove(place)
        for row in line.waiting:
            self.fates[row.name] = "cancelled"
        line.waiting.clear()
        if line in self.backlog:
            self.backlog.remove(line)
        self.vacate(line)

    def wait(self, microseconds: int) -> None:
        end = self.now + microseconds
        while True:
            times = [line.expires for line in self.backlog if line.expires]
            times += [line.seen + IDLE_US for line in self.live.values() if line.placed]
            times += [when + IDLE_US for when in self.lost.values()]
            due = min(times, default=end + 1)
            if due > end:
                break
            self.now = due
            for line in [each for each in self.backlog if each.expires and each.expires <= due]:
                for row in line.waiting:
                    self.fates[row.name] = "expired"
                line.waiting.clear()
                self.backlog.remove(line)
                if self.live.get(line.number) is line:
                    del self.live[line.number]
            for line in list(self.live.values()):
                if line.placed and line.seen + IDLE_US <= due:
                    del self.live[line.number]
                    line.open = False
                    self.vacate(line)
            self.lost = {number: when for number, when in self.lost.items() if when + IDLE_US > due}
            self.settle()
        self.now = end

    def finish(self, instance: int) -> None:
        batch = self.running[instance]
        if batch is None:
            return
        self.running[instance] = None
        for place in batch:
            assert place.row is not None
            self.fates[place.row.name] = "answered"
            place.row = place.of = None
        if not self.direct:  # who was in a batch before another is so again
            self.places.sort(key=lambda place: batch.index(place) if place in batch else len(batch))
        self.settle()
        self.places.sort(key=lambda place: (place.instance, place.index))

    def crash(self, instance: int) -> None:
        if self.down[instance]:
            return
        self.down[instance] = True
        batch, self.running[instance] = self.running[instance], None
        mine = [place for place in self.places if place.instance == instance]
        for place in mine:
            for line in [each for each in (place.of, place.line) if each is not None]:
                if not line.begun:
                    continue
                line.begun = False
                if place.of is line and place.row is not None and not place.row.begun:
                    self.fates[place.row.name] = "lost"
                    place.row = place.of = None
                    self.queues[instance].remove(place)
                while line.waiting and not line.waiting[0].start:
                    self.fates[line.waiting.pop(0).name] = "lost"
                if not line.waiting:
                    if self.live.get(line.number) is line:
                        del self.live[line.number]
                        self.lost[line.number] = self.now
                    line.open = False
                    if place.line is line:
                        self.leave(place)
        for place in batch or ():
            assert place.row is not None
            self.fates[place.row.name] = "failed"
            place.row = place.of = None
        self.settle()

    def revive(self, instance: int) -> None:
        if self.down[instance]:
            self.down[instance] = False
            for place in self.places:
                if place.instance == instance and place.line is None:
                    self.leave(place)
                    self.place()
            self.settle()

    # What follows from it

    def lines(self) -> list[Line]:
        return [*self.backlog, *(place.line for place in self.places if place.line is not None)]

    def leave(self, place: Place) -> None:
        place.line = None
        self.freed += 1
        place.freed = self.freed

    def vacate(self, line: Line) -> None:
        """Its slot is free if nothing of it is to be taken any more."""
        if not line.open and not line.waiting:
            for place in self.places:
                if place.line is line:
                    self.leave(place)
                    self.place()

    def place(self) -> None:
        """Give free slots to those that wait for one."""
        while self.backlog:
            free = [place for place in self.places if place.line is None and not self.down[place.instance]]
            if not free:
                return
            if self.direct:
                best = min(free, key=lambda place: (place.index, place.freed))
            else:
                idle = [place for place in free if place.row is None]
                best = (
                    min(idle, key=lambda place: (place.index, place.freed))
                    if idle
                    else min(free, key=lambda place: place.freed)
                )
            line = self.backlog.pop(0)
            best.line, line.placed, line.expires = line, True, 0
            if self.live.get(line.number) is line:
                line.seen = self.now
                self.live[line.number] = self.live.pop(line.number)

    def settle(self) -> None:
        changed = True
        while changed:
            changed = self.settle_oldest() if not self.direct else self.settle_direct()

    def take(self, place: Place) -> None:
        line = place.line
        assert line is not None
        row = line.waiting.pop(0)
        if row.start:
            line.begun = False
        place.row, place.of = row, line
        self.vacate(line)

    def begin(self, place: Place) -> str:
        assert place.row is not None
        assert place.of is not None
        place.row.begun = place.of.begun = True
        return place.row.name

    def settle_oldest(self) -> bool:
        changed = False
        for place in self.places:
            if place.row is None and place.line is not None and place.line.waiting:
                self.take(place)
                self.queues[place.instance].append(place)
                changed = True
        for number, queue in enumerate(self.queues):
            if queue and self.running[number] is None and not self.down[number]:
                batch, self.queues[number] = queue[:ROWS], queue[ROWS:]
                self.running[number] = batch
                self.batches[number].append([self.begin(place) for place in batch])
                changed = True
        return changed

    def settle_direct(self) -> bool:
        changed = False
        for number in range(len(self.running)):
            if self.running[number] is not None or self.down[number]:
                continue
            mine = [place for place in self.places if place.instance == number]
            due = [
                place for place in mine if place.row is None and place.line is not None and place.line.waiting
            ]
            if due:
                rows = []
                for place in mine[: due[-1].index + 1]:
                    if place in due:
                        self.take(place)
                        rows.append(self.begin(place))
                    else:
                        rows.append("-")
                self.running[number] = due
                self.batches[number].append(rows)
                changed = True
        return changed


WORDS = {
    "must specify the START flag": "no start",
    "is lost": "lost",
    "was cancelled": "cancelled",
    "has been expired": "expired",
    "the process ended": "failed",
    "Server is stopping": "stopping",
}


def fates(bench: Bench) -> dict[str, str]:
    """What became of requests, in the words of the model."""
    found = dict.fromkeys(bench.answers, "answered")
    for name, text in bench.errors.items():
        found[name] = next(word for words, word in WORDS.items() if words in text)
    return found


NUMBER = st.integers(1, 4)
INSTANCE = st.integers(0, 1)
STEP = st.one_of(
    st.tuples(
        st.just("send"), NUMBER, st.sampled_from(["S", "", "", "E", "SE"]), st.sampled_from([0, 0, 300])
    ),
    st.tuples(st.just("send"), NUMBER, st.sampled_from(["S", "", "", "E"]), st.just(0)),
    st.tuples(st.just("finish"), INSTANCE),
    st.tuples(st.just("finish"), INSTANCE),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1, 299, 300, 999, 1000])),
    st.tuples(st.just("crash"), INSTANCE),
    st.tuples(st.just("revive"), INSTANCE),
    st.tuples(st.just("stop")),
)


@settings(max_examples=150, deadline=None)
@given(st.booleans(), st.integers(1, 2), st.lists(STEP, max_size=60))
def test_whatever_befalls_sequences_the_rules_hold(
    direct: bool, instances: int, steps: list[tuple[object, ...]]
) -> None:
    strategy = "direct { }" if direct else "oldest { max_candidate_sequences: 2 }"
    bench = Bench(configuration(strategy, rows=ROWS), instances)
    rules = Rules(instances, 2, direct)
    sent: list[str] = []
    for kind, *arguments in steps:
        if kind == "send":
            number, flags, timeout = arguments
            assert isinstance(number, int) and isinstance(flags, str) and isinstance(timeout, int)  # noqa: PT018
            name = bench.send(number, flags, timeout_us=timeout)
            sent.append(name)
            rules.send(name, number, "S" in flags, "E" in flags, timeout)
        elif kind == "cancel":
            (back,) = arguments
            assert isinstance(back, int)
            if back < len(sent):
                name = sent[-1 - back]
                if name not in rules.fates:
                    bench.cancel(name)
                    rules.cancel(name)
        elif kind == "wait":
            (microseconds,) = arguments
            assert isinstance(microseconds, int)
            bench.wait(microseconds)
            rules.wait(microseconds)
        elif kind == "stop":
            bench.batcher.stop()
            rules.stopping = True
        else:
            (instance,) = arguments
            assert isinstance(instance, int)
            if instance >= instances:
                continue
            if kind == "finish" and bench.runners[instance].running:
                bench.finish(instance)
                rules.finish(instance)
            elif kind == "crash" and bench.runners[instance].healthy:
                bench.crash(instance)
                rules.crash(instance)
            elif kind == "revive" and not bench.runners[instance].healthy:
                bench.revive(instance)
                rules.revive(instance)
        assert [runner.batches for runner in bench.runners] == rules.batches
        assert fates(bench) == rules.fates
    _end(bench, rules)


def _end(bench: Bench, rules: Rules) -> None:
    """Let all that is under way end: nothing is left."""
    for number, runner in enumerate(bench.runners):
        if not runner.healthy:
            bench.revive(number)
            rules.revive(number)
    for _ in range(200):
        for number, runner in enumerate(bench.runners):
            while runner.running:
                bench.finish(number)
                rules.finish(number)
        bench.wait(IDLE_US)
        rules.wait(IDLE_US)
        if bench.idle():
            break
    assert bench.idle()
    assert [runner.batches for runner in bench.runners] == rules.batches
    assert fates(bench) == rules.fates
    assert set(rules.fates) == set(bench.requests)
