"""Sequences as Triton's own tests run them: clients of tritonclient, a server, and its backends for such tests."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

FLAGS = "int32_false_true: [ 0, 1 ]"
START, END, READY = [
    f'control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} {FLAGS} }} }}'
    for kind in ("START", "END", "READY")
]
CORRID = 'control_input {{ name: "CORRID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{} }} }}'
TENSORS = """
    input { name: "INPUT" data_type: TYPE_INT32 dims: 1 }
    output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }
"""
MINUTE_US = 60_000_000
WHOLE_BATCHES = f"direct {{ max_queue_delay_microseconds: {MINUTE_US} minimum_slot_utilization: 1.0 }}"
OLDEST = "oldest { max_candidate_sequences: 4 }"


def sequence(strategy: str = "", rows: int = 4, instances: int = 1, idle_us: int = MINUTE_US) -> str:
    return f"""
        backend: "sequence" max_batch_size: {rows} {TENSORS} instance_group {{ count: {instances} }}
        sequence_batching {{ max_sequence_idle_microseconds: {idle_us} {strategy} {START} {READY} }}
    """


def isolated(config: str) -> str:
    """The same, with a process for each instance."""
    return f'{config} parameters {{ key: "isolation" value {{ string_value: "process" }} }}'


def dyna(strategy: str, datatype: str, instances: int = 1) -> str:
    return f"""
        backend: "dyna_sequence" max_batch_size: 4 {TENSORS} instance_group {{ count: {instances} }}
        sequence_batching {{
            max_sequence_idle_microseconds: {MINUTE_US} {strategy} {START} {END} {READY} {CORRID.format(datatype)}
        }}
    """


MODELS = {
    "direct": sequence(),
    "direct_2": sequence(instances=2),
    "direct_nobatch": sequence(rows=0),
    "direct_whole": sequence(WHOLE_BATCHES),
    "direct_idle": sequence(rows=1, idle_us=200_000),
    "oldest": sequence(OLDEST),
    "oldest_2": sequence(OLDEST, instances=2),
    "dyna": dyna(OLDEST, "UINT64"),
    "dyna_2": dyna(OLDEST, "UINT64", instances=2),
    "dyna_direct": dyna("direct { }", "UINT64"),
    "dyna_string": dyna(OLDEST, "STRING"),
    "dyna_string_direct": dyna("direct { }", "STRING"),
    "direct_isolated_2": isolated(sequence(instances=2)),
    "dyna_isolated": isolated(dyna(OLDEST, "UINT64")),
}
SLOTS = {
    "direct": 4,
    "direct_2": 8,
    "direct_nobatch": 1,
    "oldest": 4,
    "oldest_2": 8,
    "dyna": 4,
    "dyna_2": 8,
    "direct_isolated_2": 8,
    "dyna_isolated": 4,
}
OF_NUMBERS = [name for name in MODELS if name not in ("direct_whole", "direct_idle")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    repository = tmp_path_factory.mktemp("repository")
    for name, config in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        Path(repository / name / "config.pbtxt").write_text(config)
    with start_server(repository) as running:
        yield running


class Clients:
    """Sends requests, each thread through a client of its own."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._threads = ThreadPoolExecutor(32)
        self._local = threading.local()
        self._opened: list[client.InferenceServerClient] = []

    def infer(
        self, model: str, of: int | str, value: int | list[int], flags: str = "", **options: Any
    ) -> int:
        """The element that the output is filled with.

        Args:
            model: its name.
            of: the correlation id.
            value: the input; a list for a batch of several rows.
            flags: S for the start of the sequence, E for its end.
            options: further arguments of `infer`.
        """
        if not hasattr(self._local, "client"):
            self._local.client = client.InferenceServerClient(self.server.http)
            self._opened.append(self._local.client)
        shape = [1] if model.endswith("nobatch") else [-1, 1]
        array = np.array(value, np.int32).reshape(shape)
        tensor = client.InferInput("INPUT", array.shape, "INT32")
        tensor.set_data_from_numpy(array)
        result = self._local.client.infer(
            model, [tensor], sequence_id=of, sequence_start="S" in flags, sequence_end="E" in flags, **options
        )
        output = result.as_numpy("OUTPUT")
        assert output.shape == array.shape
        return int(output.reshape(-1)[0])

    def send(self, *arguments: Any, **options: Any) -> "Future[int]":
        """The same, meanwhile."""
        return self._threads.submit(partial(self.infer, *arguments, **options))

    def side_by_side(self, calls: list[Callable[[], Any]]) -> list[Any]:
        """What the calls return, each made in a thread."""
        return [future.result(60) for future in [self._threads.submit(call) for call in calls]]

    def waiting(self, model: str) -> int:
        """How many requests wait."""
        _, text = self.server.get("/metrics", self.server.metrics)
        return sum(
            int(float(line.rpartition(b" ")[2]))
            for line in text.splitlines()
            if line.startswith(b'nv_inference_pending_request_count{model="%s"' % model.encode())
        )

    def wait_for(self, model: str, count: int) -> None:
        """Return once so many requests wait."""
        wait_until(lambda: self.waiting(model) == count, f"{count} waiting requests")

    def statistics(self, model: str) -> dict[str, Any]:
        """Its statistics."""
        _, text = self.server.get(f"/v2/models/{model}/stats")
        statistics: dict[str, Any] = json.loads(text)["model_stats"][0]
        return statistics

    def close(self) -> None:
        """Close the clients."""
        self._threads.shutdown()
        for each in self._opened:
            each.close()


@pytest.fixture
def clients(server: ServerProcess) -> Iterator[Clients]:
    opened = Clients(server)
    yield opened
    opened.close()


def named(model: str, number: int) -> int | str:
    """A correlation id for the model."""
    return str(number) if "string" in model else number


def run(clients: Clients, model: str, of: int | str, values: list[int]) -> list[int]:
    """A whole sequence, each request after the answer to the one before."""
    last = len(values) - 1
    return [
        clients.infer(model, of, value, "S" * (index == 0) + "E" * (index == last))
        for index, value in enumerate(values)
    ]


def sums(model: str, of: int | str, values: list[int]) -> list[int]:
    """What it should be answered with."""
    totals = [sum(values[: index + 1]) for index in range(len(values))]
    if model.startswith("dyna"):
        totals[-1] += int(of)
    return totals


@pytest.mark.parametrize("model", OF_NUMBERS)
@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5, 6, 7, 8, 9], [42], [11, -7]], ids=["nine", "one", "two"])
def test_a_sequence_is_added_up(clients: Clients, model: str, values: list[int]) -> None:
    of = named(model, 5)
    assert run(clients, model, of, values) == sums(model, of, values)


@pytest.mark.parametrize("model", OF_NUMBERS)
def test_sequences_side_by_side_do_not_mix(clients: Clients, model: str) -> None:
    workloads = {
        named(model, 1000 + number): [number * 100 + step for step in range(12)] for number in range(24)
    }
    answers = clients.side_by_side(
        [partial(run, clients, model, of, values) for of, values in workloads.items()]
    )
    assert answers == [sums(model, of, values) for of, values in workloads.items()]
    assert clients.waiting(model) == 0


@pytest.mark.parametrize("model", OF_NUMBERS)
def test_an_id_may_be_used_again_and_again(clients: Clients, model: str) -> None:
    of = named(model, 77)
    assert [run(clients, model, of, [2, 3]) for _ in range(5)] == [sums(model, of, [2, 3])] * 5


@pytest.mark.parametrize("model", OF_NUMBERS)
def test_a_start_without_an_end_before_begins_anew(clients: Clients, model: str) -> None:
    of = named(model, 8)
    assert clients.infer(model, of, 5, "S") == 5
    assert clients.infer(model, of, 6) == 11
    assert run(clients, model, of, [1, 1]) == sums(model, of, [1, 1])


@pytest.mark.parametrize("model", SLOTS)
def test_a_sequence_without_a_slot_waits_for_one(clients: Clients, model: str) -> None:
    holders = range(1, SLOTS[model] + 1)
    assert [clients.infer(model, of, of, "S") for of in holders] == list(holders)
    waiting = clients.send(model, 100, 7, "S")
    clients.wait_for(model, 1)
    assert [clients.infer(model, of, 1) for of in holders] == [of + 1 for of in holders]
    assert not waiting.done()
    ended = sums(model, SLOTS[model], [SLOTS[model], 1, 0])[-1]
    assert clients.infer(model, SLOTS[model], 0, "E") == ended
    assert waiting.result(60) == 7
    for of in holders[:-1]:
        clients.infer(model, of, 0, "E")
    assert clients.infer(model, 100, 1, "E") == sums(model, 100, [7, 1])[-1]


@pytest.mark.parametrize("model", ["direct_nobatch", "dyna"])
def test_a_whole_sequence_may_wait(clients: Clients, model: str) -> None:
    holders = range(1, SLOTS[model] + 1)
    for of in holders:
        clients.infer(model, of, 0, "S")
    answers: list[Future[int]] = []
    for index, (value, flags) in enumerate([(1, "S"), (2, ""), (3, "E")]):
        answers.append(clients.send(model, 100, value, flags))
        clients.wait_for(model, index + 1)
    for of in holders:
        clients.infer(model, of, 0, "E")
    assert [answer.result(60) for answer in answers] == sums(model, 100, [1, 2, 3])


def test_a_wait_for_a_slot_may_be_limited(clients: Clients) -> None:
    clients.infer("direct_nobatch", 1, 0, "S")
    with pytest.raises(
        InferenceServerException, match="timeout of the corresponding sequence has been expired"
    ):
        clients.infer("direct_nobatch", 2, 0, "S", timeout=1000)
    assert clients.infer("direct_nobatch", 1, 3, "E") == 3


def test_a_silent_sequence_gives_its_slot_to_the_next(clients: Clients) -> None:
    clients.infer("direct_idle", 1, 1, "S")
    assert clients.infer("direct_idle", 2, 2, "SE") == 2
    with pytest.raises(InferenceServerException, match="must specify the START flag on the first request"):
        clients.infer("direct_idle", 1, 1)


def test_full_and_half_batches_run_as_one(clients: Clients) -> None:
    before = clients.statistics("direct_whole")["execution_count"]
    firsts = [clients.send("direct_whole", of, of, "S") for of in range(1, 5)]
    assert [first.result(60) for first in firsts] == [1, 2, 3, 4]
    lasts = [clients.send("direct_whole", of, 10, "E") for of in range(1, 5)]
    assert [last.result(60) for last in lasts] == [11, 12, 13, 14]
    after = clients.statistics("direct_whole")
    assert after["execution_count"] == before + 2
    assert [each["batch_size"] for each in after["batch_stats"]] == [4]


@pytest.mark.parametrize("model", OF_NUMBERS)
def test_what_is_no_request_of_a_sequence_is_told(clients: Clients, model: str) -> None:
    of = named(model, 9)
    start = f"inference request for sequence {of} to model '{model}' must specify the START flag on the first request"
    for flags in ("", "E"):
        with pytest.raises(InferenceServerException, match=start) as error:
            clients.infer(model, of, 1, flags)
        assert error.value.status() == "400"
    with pytest.raises(InferenceServerException, match="must specify a non-zero or non-empty correlation ID"):
        clients.infer(model, 0, 1, "S")
    if "nobatch" not in model:
        with pytest.raises(
            InferenceServerException, match="batch-size 1 due to requirements of sequence batcher"
        ):
            clients.infer(model, of, [1, 2], "S")


def test_a_text_is_an_id_only_where_the_model_takes_one(clients: Clients) -> None:
    with pytest.raises(InferenceServerException, match="correlation ID 'twelve' is a string"):
        clients.infer("dyna", "twelve", 1, "S")
    assert clients.infer("direct", "twelve", 1, "SE") == 1


@pytest.mark.parametrize("model", ["direct_2", "dyna_2", "dyna_string"])
def test_sequences_share_a_stream_of_grpc(server: ServerProcess, model: str) -> None:
    answers: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    workloads = {
        named(model, 1000): [11, 7, 5, 3, 2, 0, 1],
        named(model, 1001): [-11, -7, -5, -3, -2, 0, -1],
    }
    received: dict[str, list[int]] = {str(of): [] for of in workloads}
    with grpc_client.InferenceServerClient(server.grpc) as triton:
        triton.start_stream(lambda result, error: answers.put((result, error)))
        for index in range(7):
            for of, values in workloads.items():
                tensor = grpc_client.InferInput("INPUT", [1, 1], "INT32")
                tensor.set_data_from_numpy(np.array([[values[index]]], np.int32))
                triton.async_stream_infer(
                    model, [tensor], request_id=str(of),
                    sequence_id=of, sequence_start=index == 0, sequence_end=index == 6,
                )  # fmt: skip
        for _ in range(14):
            result, error = answers.get(timeout=60)
            assert error is None
            received[result.get_response().id].append(int(result.as_numpy("OUTPUT")[0, 0]))
        triton.stop_stream()
    assert received == {str(of): sums(model, of, values) for of, values in workloads.items()}
