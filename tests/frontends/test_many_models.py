"""What tells of all models is made in steps: a server with very many of them answers others in between."""

import asyncio
import json
import select
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest

from halimede.core.clock import VirtualClock
from halimede.frontends import descriptions, metrics
from halimede.frontends.console.console import Console, ConsoleSettings
from halimede.frontends.console.feed import Listener, SnapshotEvents
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.management import Management
from halimede.frontends.http.routes import Call
from halimede.frontends.metrics import Metrics, MetricsSettings
from halimede.frontends.recent_logs import RecentLogs
from halimede.frontends.steps_of_work import in_steps, taken, whole
from tests.frontends.http.models import ECHO, ModelServer, serve_models
from tests.frontends.http.serving import Client, get
from tests.support.waiting import wait_until

MODELS = 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    repository = tmp_path_factory.mktemp("repository")
    names = [f"echo_{number}" for number in range(MODELS)]
    for name in names:
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(ECHO)
        (repository / name / "labels.txt").write_text("cat\ndog\n")
    with serve_models(repository, None, *names) as running:
        yield running


class Witness:
    """Asks for the server's health when the work begins.

    Attributes:
        answered: it had the answer before the work ended.
    """

    def __init__(self, client: Client) -> None:
        assert client.ask(get("/v2/health/live")).status == 200  # the connection is open
        self._client = client
        self._asked = False
        self.answered = False

    def watch(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The work, on one model, which is watched."""

        def watched(*args: Any, **named: Any) -> Any:
            if not self._asked:
                self._asked = True
                self._client.send(get("/v2/health/live"))
            elif not self.answered:
                self.answered = bool(select.select([self._client.socket], [], [], 0)[0])
            return work(*args, **named)

        return watched


@pytest.fixture
def witness(server: ModelServer) -> Iterator[Witness]:
    with server.served.client() as client:
        yield Witness(client)


def test_statistics_of_all_models(
    server: ModelServer, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "statistics", witness.watch(descriptions.statistics))
    with server.served.client() as client:
        assert client.ask(get("/v2/models/stats")).body.count(b'"inference_stats"') == MODELS
    assert witness.answered


def test_statistics_of_all_models_over_grpc(
    server: ModelServer, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "statistics", witness.watch(descriptions.statistics))
    management = Management(server.engine, "triton")
    answer = server.served.loop.run(management.model_statistics(pb.ModelStatisticsRequest()))
    assert len(answer.model_stats) == MODELS
    assert witness.answered


class AskedExchange:
    """An exchange without a connection.

    Attributes:
        answers: the bodies that it was answered with.
    """

    def __init__(self, path: str, headers: dict[str, str] | None = None) -> None:
        self.method = "GET"
        self.path = path
        self.headers = headers or {}
        self.closed = False
        self.answers: list[bytes] = []

    def respond(self, status: int, parts: Sequence[bytes], *_: object, **__: object) -> None:
        assert status == 200
        self.answers.append(b"".join(parts))


def answered(server: ModelServer, answer: Callable[..., None], exchange: AskedExchange, *more: Any) -> bytes:
    server.served.loop.call(answer, exchange, *more)
    wait_until(lambda: bool(exchange.answers), "the answer")
    return exchange.answers[0]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_metrics_of_all_models(
    server: ModelServer, witness: Witness, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    made = Metrics(server.engine, MetricsSettings())
    monkeypatch.setattr(metrics, "labels", witness.watch(metrics.labels))  # used first
    model = type(server.engine.find("echo_0", -1))
    monkeypatch.setattr(model, "activity", witness.watch(model.activity))  # used last
    text = answered(server, made.answer, AskedExchange("/metrics", {"accept": accept}))
    assert text.count(b"nv_inference_count{") == MODELS
    assert witness.answered


def test_snapshot_of_the_console(
    server: ModelServer, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = type(server.engine.find("echo_0", -1))
    monkeypatch.setattr(model, "activity", witness.watch(model.activity))
    console = Console(server.engine, ConsoleSettings(), RecentLogs(), [])
    call = console.calls[Call.CONSOLE_SNAPSHOT]
    document = json.loads(answered(server, call, AskedExchange("/v2/console/snapshot"), None))
    assert len(document["models"]) == MODELS
    assert witness.answered


class _Stream:
    full = False

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self.written.append(piece)


def test_who_listens_while_a_snapshot_is_made_gets_that_one() -> None:
    clock = VirtualClock()
    begun: list[int] = []

    def take() -> Generator[None, None, dict[str, object]]:
        begun.append(1)
        yield
        yield
        return {"number": len(begun)}

    streams = _Stream(), _Stream()
    first, second = (Listener(stream, 0) for stream in streams)  # type: ignore[arg-type]  # fakes
    events = SnapshotEvents(clock, take)
    events.send([first])
    assert not streams[0].written
    events.send([first, second])
    clock.advance(0)
    assert [stream.written for stream in streams] == [[b'event: snapshot\ndata: {"number":1}\n\n']] * 2
    events.send([second])
    clock.advance(0)
    assert [len(stream.written) for stream in streams] == [1, 2]


def test_steps_are_of_so_many_items() -> None:
    steps = in_steps(range(10), str, 4)
    assert (next(steps), next(steps)) == (None, None)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == list("0123456789")
    assert whole(in_steps(range(10), str, 4)) == list("0123456789")
    assert asyncio.run(taken(in_steps(range(10), str, 4))) == list("0123456789")
