"""Passages through containers that tests play, on real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from halimede.core.tasks import Tasks
from halimede.hosting.containers.counts import ContainerCounts
from halimede.hosting.containers.passage import Passage, Step
from halimede.hosting.http.request import Request
from halimede.hosting.routing.heads import TARGET_CONTAINER
from halimede.http1.upstream import UpstreamPool
from tests.frontends.http.serving import Answer
from tests.hosting.http.serving import Served, post, serve
from tests.hosting.instances import FakeInstance
from tests.support.waiting import wait_until


@dataclass
class Played:
    """A container that a test plays."""

    name: str
    instance: FakeInstance
    pool: UpstreamPool = field(init=False)
    counts: ContainerCounts = field(default_factory=ContainerCounts)

    def __post_init__(self) -> None:
        self.pool = UpstreamPool("127.0.0.1", self.instance.port)


@dataclass
class Row:
    """Containers in a row, behind one socket.

    Attributes:
        served: the socket.
        played: the containers.
        passages: those that are under way.
    """

    served: Served
    played: list[Played]
    passages: set[Passage]

    @property
    def containers(self) -> list[FakeInstance]:
        """Who plays them."""
        return [each.instance for each in self.played]

    def ask(self, body: bytes, *lines: str) -> Answer:
        """The answer to a request with those headers."""
        with self.served.client() as client:
            return client.ask(post(body, "/invocations", *lines))


@contextmanager
def row_of(count: int) -> Iterator[Row]:
    """So many containers ``c1``, ``c2``, … in a row; at the end nothing may be under way."""
    passages: set[Passage] = set()
    played = [Played(f"c{number}", FakeInstance()) for number in range(1, count + 1)]
    tasks = Tasks()

    def connect(step: Step) -> None:
        tasks.start("connecting to a container", step.connect())

    def handle(request: Request) -> None:
        name = request.head.headers.get(TARGET_CONTAINER)
        wanted = [each for each in played if name in (None, each.name)]
        passage = Passage(request, wanted, connect, passages.discard)
        passages.add(passage)
        passage.begin()

    try:
        with serve(handle) as served:
            yield Row(served, played, passages)
            wait_until(lambda: not passages)
            for each in played:
                served.loop.call(each.pool.close)
    finally:
        for each in played:
            each.instance.close()
