"""Instance groups that change while requests run: over HTTP, by load requests and by polling."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import tritonclient.http as httpclient

from tests.python_models.support import FLOATS, Models, http_inputs, kill
from tests.support.server import start_server
from tests.support.waiting import wait_until

WHO = """
class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            key = request.correlation_id()
            self.sums[key] = self.sums.get(key, 0) + x.sum()
            time.sleep(0.001)
            out = np.array([[os.getpid(), self.sums[key]]], np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses
"""
BATCHED = FLOATS + "max_batch_size: 4\n"
SEQUENCES = BATCHED + "sequence_batching { max_sequence_idle_microseconds: 60000000 "
DIRECT, OLDEST = SEQUENCES + "direct { } }", SEQUENCES + "oldest { max_candidate_sequences: 4 } }"
ONE_ROW = np.ones((1, 1), np.float32)


@pytest.fixture(scope="module")
def models(limited_models: Models) -> Models:
    return limited_models


def groups(*counts: str) -> str:
    """Instance groups."""
    return "\ninstance_group [" + ", ".join(f"{{ kind: KIND_CPU {each} }}" for each in counts) + "]"


def regroup(models: Models, name: str, config: str) -> None:
    """Give a model another configuration, and have it loaded."""
    (models.repository / name / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}')
    models.http.load_model(name)


def infer(
    client: httpclient.InferenceServerClient, name: str, sequence: int = 0, flags: str = ""
) -> tuple[int, int]:
    """The process that answered, and the sum of the sequence so far."""
    result = client.infer(
        name,
        http_inputs(IN=ONE_ROW),
        sequence_id=sequence,
        sequence_start="S" in flags,
        sequence_end="E" in flags,
    ).as_numpy("OUT")
    assert result is not None
    process, total = result[0].tolist()
    return int(process), int(total)


@contextmanager
def load_on(url: str, name: str, clients: int = 6) -> Iterator["Counter[int]"]:
    """Clients that send requests one after the other; each has to be answered. How often each process did."""
    answered: Counter[int] = Counter()
    stop = threading.Event()

    def send() -> None:
        with httpclient.InferenceServerClient(url, network_timeout=60) as client:
            while not stop.is_set():
                process, _ = infer(client, name)
                answered[process] += 1

    with ThreadPoolExecutor(clients) as threads:
        sending = [threads.submit(send) for _ in range(clients)]
        try:
            yield answered
        finally:
            stop.set()
        for each in sending:
            each.result()


def answering(answered: "Counter[int]") -> set[int]:
    """The processes that answer the next hundred requests."""
    before = answered.copy()
    wait_until(lambda: answered.total() > before.total() + 100, "a hundred answers", 60)
    return set(answered - before)


def until_answered_by(answered: "Counter[int]", count: int) -> None:
    """Wait until so many processes answer."""
    wait_until(lambda: len(answering(answered)) == count, f"{count} instances to answer", 60)


def until_there_are(models: Models, name: str, count: int) -> None:
    """Wait until so many processes of the model are left."""
    wait_until(lambda: len(models.pids(name)) == count, f"{count} processes to be left")


@pytest.mark.parametrize("scheduler", ["", "dynamic_batching { }"])
def test_no_request_fails_while_instances_come_and_go(models: Models, scheduler: str) -> None:
    config = BATCHED + scheduler
    name = models.load(WHO, config + groups("count: 1"))
    with load_on(models.server.http, name) as answered:
        stayed = set(models.pids(name))
        for count in (3, 1, 4, 2, 1):
            counted = models.statistics(name)["inference_count"]
            regroup(models, name, config + groups(f"count: {count}"))
            until_answered_by(answered, count)
            assert models.statistics(name)["inference_count"] > counted, "nothing was loaded again"
            assert models.http.get_model_config(name)["instance_group"][0]["count"] == count
            until_there_are(models, name, count)
            assert stayed & set(models.pids(name))
            stayed = set(models.pids(name))


def test_a_configuration_in_the_request_changes_instances(models: Models) -> None:
    name = models.load(WHO, BATCHED + groups("count: 1"))
    (first,) = models.pids(name)
    document = models.http.get_model_config(name)
    document["instance_group"][0]["count"] = 2
    models.http.load_model(name, config=json.dumps(document))
    assert first in models.pids(name)
    assert len(models.pids(name)) == 2


def test_polling_changes_instances(tmp_path_factory: pytest.TempPathFactory) -> None:
    repository = tmp_path_factory.mktemp("polled")
    flags = ("--model-control-mode=poll", "--repository-poll-secs=1")
    config = BATCHED + groups("count: 1")
    with start_server(repository, *flags) as server:
        models = Models(repository, server)
        models.write(WHO, config, "m")
        wait_until(lambda: models.ready("m"), "the model to be loaded", 60)
        (first,) = models.pids("m")
        with load_on(server.http, "m"):
            (repository / "m" / "config.pbtxt").write_text(
                'name: "m" backend: "python"' + config.replace("count: 1", "count: 3")
            )
            wait_until(lambda: len(models.pids("m")) == 3, "more instances", 60)
        assert first in models.pids("m")
        models.close()


@pytest.mark.parametrize("config", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_sequences_stay_where_they_are(models: Models, config: str) -> None:
    name = models.load(WHO, config + groups("count: 1"))
    before = {number: infer(models.http, name, number, "S")[0] for number in (1, 2, 3, 4)}
    regroup(models, name, config + groups("count: 2"))
    for number in (5, 6, 7, 8):
        before[number], _ = infer(models.http, name, number, "S")
    assert len(set(before.values())) == 2
    regroup(models, name, config + groups("count: 1"))
    for number, process in before.items():
        _, total = infer(models.http, name, number)
        assert infer(models.http, name, number) == (process, total + 1)
    assert len(models.pids(name)) == 2
    for number, process in before.items():
        assert infer(models.http, name, number, "E")[0] == process
    until_there_are(models, name, 1)
    (left,) = models.pids(name)
    assert infer(models.http, name, 9, "SE")[0] == left


def test_an_instance_that_leaves_may_crash(models: Models) -> None:
    name = models.load(WHO, DIRECT + groups("count: 2"))
    _, leaving = [infer(models.http, name, number, "S")[0] for number in (1, 2)]
    regroup(models, name, DIRECT + groups("count: 1"))
    kill(leaving)
    until_there_are(models, name, 1)
    wait_until(lambda: models.ready(name), "the model to be ready")
    assert infer(models.http, name, 3, "SE")[1] == 1


def test_passive_instances_get_no_requests(models: Models) -> None:
    name = models.load(WHO, BATCHED + groups("count: 1"))
    active = set(models.pids(name))
    regroup(models, name, BATCHED + groups("count: 1", "count: 2 passive: true"))
    passive = set(models.pids(name)) - active
    assert len(passive) == 2
    with load_on(models.server.http, name) as answered:
        assert answering(answered) == active
        kill(passive.pop())
        until_there_are(models, name, 3)
        wait_until(lambda: models.ready(name), "the model to be ready")
        assert answering(answered) == active
        regroup(models, name, BATCHED + groups("count: 1"))
        wait_until(lambda: set(models.pids(name)) == active, "the passive ones to end")


def test_a_passive_instance_of_sequences_may_crash(models: Models) -> None:
    name = models.load(WHO, DIRECT + groups("count: 1", "count: 1 passive: true"))
    process, _ = infer(models.http, name, 1, "S")
    (passive,) = set(models.pids(name)) - {process}
    kill(passive)
    wait_until(
        lambda: len(set(models.pids(name)) - {passive}) == 2, "the passive instance to be started again"
    )
    assert infer(models.http, name, 1, "E") == (process, 2)


def test_instances_that_need_another_share_of_a_resource_take_the_place_of_others(models: Models) -> None:
    limited = 'count: 2 rate_limiter {{ resources {{ name: "R-{}" count: {} }} }}'
    name = models.load(WHO, BATCHED + groups("count: 2"))
    with load_on(models.server.http, name) as answered:
        before = answering(answered)
        regroup(models, name, BATCHED + groups(limited.format(name, 1)))
        wait_until(lambda: not answering(answered) & before, "other instances to answer", 60)
        counted = models.statistics(name)["inference_count"]
        before = answering(answered)
        regroup(models, name, BATCHED + groups(limited.format(name, 2)))
        wait_until(lambda: not answering(answered) & before, "other instances to answer", 60)
        assert models.statistics(name)["inference_count"] > counted, "nothing was loaded again"
    regroup(models, name, BATCHED + groups("count: 1"))
    assert infer(models.http, name)[1] == 1
