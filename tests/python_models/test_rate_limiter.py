"""The rate limiter, with Python models over HTTP and gRPC; the texts of errors are tritonserver's."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest

from tests.python_models.support import (
    DECOUPLED,
    FLOATS,
    ONES,
    RATE_LIMITER,
    TEXTS,
    Models,
    Stream,
    kill,
    serve_models,
)
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def models(limited_models: Models) -> Models:
    return limited_models


def limited(*resources: str, priority: int = 1, instances: int = 1, config: str = FLOATS) -> str:
    """A configuration whose instances need resources, each as NAME:COUNT, or NAME:COUNT:global."""
    declared = ""
    for each in resources:
        name, number, *scope = each.split(":")
        declared += f'resources {{ name: "{name}" count: {number} global: {str(bool(scope)).lower()} }} '
    group = f"kind: KIND_CPU count: {instances} rate_limiter {{ {declared} priority: {priority} }}"
    return f"{config}\ninstance_group [{{ {group} }}]"


def exclusive(directory: Path, work: str = "time.sleep(0.002)") -> str:
    """A model whose executions fail if another model's is under way, and which notes each of its own."""
    return f"""
class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        held = os.open({str(directory / "held")!r}, os.O_CREAT | os.O_EXCL)
        try:
            with open({str(directory / "order")!r}, "a") as order:
                order.write(self.name + "\\n")
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                {work}
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]))
            return responses
        finally:
            os.close(held)
            os.unlink({str(directory / "held")!r})
"""


WAITING = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            path = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0].decode()
            open(path + ".began", "w").close()
            while not os.path.exists(path):
                time.sleep(0.002)
        out = pb_utils.Tensor("OUT", np.array([b""], object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


class Gate:
    """An execution of a model `WAITING` that goes on when it is opened."""

    def __init__(self, models: Models, model: str, path: Path, pool: ThreadPoolExecutor) -> None:
        self._path = path
        self.answer: Future[None] = pool.submit(
            self._send, f"http://{models.server.http}/v2/models/{model}/infer"
        )

    def _send(self, url: str) -> None:
        tensor = {"name": "IN", "shape": [1], "datatype": "BYTES", "data": [str(self._path)]}
        try:
            urlopen(url, json.dumps({"inputs": [tensor]}).encode(), timeout=60).close()
        except HTTPError as error:
            with error:
                raise ConnectionError(error.read().decode()) from None

    @property
    def began(self) -> bool:
        """It executes, or has."""
        return Path(f"{self._path}.began").exists()

    def open(self) -> None:
        """Let it end, and wait for that."""
        self._path.touch()
        self.answer.result(60)


@pytest.fixture
def gate(models: Models, tmp_path: Path) -> Iterator[Callable[[str], Gate]]:
    """Starts executions of models `WAITING`."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        names = (tmp_path / f"gate{number}" for number in count())

        def start(model: str) -> Gate:
            path = next(names)
            stack.callback(path.touch)
            return Gate(models, model, path, pool)

        yield start


def at_once(
    models: Models, names: Sequence[str], requests: int, waiting: Callable[[], object] = lambda: None
) -> None:
    """Send each model so many requests at once, and wait for the answers, none of which is an error.

    `waiting` is called when they have been sent.
    """
    with ThreadPoolExecutor(len(names)) as pool:
        answers = [pool.submit(models.infer_at_once, name, [ONES] * requests) for name in names]
        waiting()
        for answer in answers:
            assert [type(each) for each in answer.result()] == [np.ndarray] * len(answer.result())


def test_models_that_share_a_resource_never_execute_at_once(models: Models, tmp_path: Path) -> None:
    names = [
        models.load(exclusive(tmp_path), limited("alone:1:global")),
        models.load(exclusive(tmp_path), limited("alone:1:global", instances=2)),
    ]
    at_once(models, names, 40)


def test_priorities_share_out_the_executions(
    models: Models, gate: Callable[[str], Gate], tmp_path: Path
) -> None:
    first = models.load(exclusive(tmp_path), limited("share:1:global", priority=1))
    second = models.load(exclusive(tmp_path), limited("share:1:global", priority=2))
    holder = gate(models.load(WAITING, limited("share:1:global", config=TEXTS)))
    wait_until(lambda: holder.began, "the resource to be held")

    def open_when_all_wait() -> None:
        waiting = [
            f'nv_inference_pending_request_count{{model="{name}",version="1"}} 60' for name in (first, second)
        ]
        wait_until(
            lambda: all(
                each in models.server.get("/metrics", models.server.metrics)[1].decode() for each in waiting
            ),
            "all to wait",
        )
        holder.open()

    at_once(models, [first, second], 60, open_when_all_wait)
    executed = Counter((tmp_path / "order").read_text().split()[:45])
    assert 28 <= executed[first] <= 32


def test_a_resource_of_a_device_is_another_than_the_global_one_of_another_name(
    models: Models, gate: Callable[[str], Gate]
) -> None:
    one = models.load(WAITING, limited("of_device:1", config=TEXTS))
    other = models.load(WAITING, limited("of_server:1:global", config=TEXTS))
    third = models.load(WAITING, limited("of_device:1", "of_server:1:global", config=TEXTS))
    gates = [gate(one), gate(other)]
    wait_until(lambda: all(each.began for each in gates), "both to execute")
    last = gate(third)
    gates[0].open()
    gates[1].open()
    last.open()


def test_instances_execute_while_there_is_enough(models: Models, gate: Callable[[str], Gate]) -> None:
    models.load(WAITING, limited("two:2:global", config=TEXTS))
    model = models.load(WAITING, limited("two:1:global", instances=3, config=TEXTS))
    gates = [gate(model) for _ in range(3)]
    wait_until(lambda: sum(each.began for each in gates) == 2, "two to execute")
    gate(models.load(WAITING, TEXTS)).open()
    assert sum(each.began for each in gates) == 2
    next(each for each in gates if each.began).open()
    wait_until(lambda: all(each.began for each in gates), "the third to execute")


def test_a_crash_gives_back_what_was_held(models: Models, gate: Callable[[str], Gate]) -> None:
    crashing = models.load(WAITING, limited("crash:1:global", config=TEXTS))
    other = models.load(WAITING, limited("crash:1:global", config=TEXTS))
    lost = gate(crashing)
    wait_until(lambda: lost.began, "it to execute")
    waits = gate(other)
    (pid,) = models.pids(crashing)
    kill(pid)
    wait_until(lambda: waits.began, "the other one to execute")
    with pytest.raises(ConnectionError, match=r"unexpectedly|killed|signal"):
        lost.answer.result(60)
    waits.open()
    gate(crashing).open()


def test_a_decoupled_model_holds_its_resources_until_execute_returns(
    models: Models, gate: Callable[[str], Gate]
) -> None:
    source = """
class TritonPythonModel:
    def execute(self, requests):
        self.senders = [request.get_response_sender() for request in requests]
"""
    decoupled = models.load(source, limited("stream:1:global", config=FLOATS + DECOUPLED))
    other = models.load(WAITING, limited("stream:1:global", config=TEXTS))
    stream = Stream(models)
    stream.send(decoupled)
    wait_until(lambda: models.statistics(decoupled)["execution_count"] == 1, "it to have executed")
    gate(other).open()
    kill(models.pids(decoupled)[0])
    assert stream.take().error, "it was still to be answered"
    stream.close()


def test_unloading_makes_the_pool_smaller_and_frees_what_was_held(
    models: Models, gate: Callable[[str], Gate]
) -> None:
    large = models.load(WAITING, limited("unload:2:global", config=TEXTS))
    small = models.load(WAITING, limited("unload:1:global", instances=2, config=TEXTS))
    held = gate(large)
    wait_until(lambda: held.began, "it to execute")
    models.http.unload_model(large)
    waiting = [gate(small), gate(small)]
    held.open()
    wait_until(lambda: any(each.began for each in waiting), "another to execute")
    wait_until(lambda: models.server.get(f"/v2/models/{large}/ready")[0] != 200, "the model to be gone")
    for each in waiting:
        each.open()
    one, two = gate(small), gate(small)
    wait_until(lambda: one.began or two.began, "one to execute")
    first, second = (one, two) if one.began else (two, one)
    first.open()
    second.open()


def test_a_reloaded_model_needs_what_its_new_configuration_says(
    models: Models, gate: Callable[[str], Gate]
) -> None:
    name = models.load(WAITING, limited("reload:1:global", config=TEXTS))
    other = models.load(WAITING, limited("reload:1:global", config=TEXTS))
    first = gate(other)
    wait_until(lambda: first.began, "it to execute")
    models.load(WAITING, TEXTS, name)
    gate(name).open()
    first.open()


def test_more_instances_of_a_model_in_place_are_limited_too(
    models: Models, gate: Callable[[str], Gate]
) -> None:
    name = models.load(WAITING, limited("place:1:global", config=TEXTS))
    (pid,) = models.pids(name)
    config = models.repository / name / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 1 rate", "count: 2 rate"))
    models.http.load_model(name)
    assert len(models.pids(name)) == 2
    assert pid in models.pids(name)
    gates = [gate(name), gate(name)]
    wait_until(lambda: any(each.began for each in gates), "one to execute")
    assert not all(each.began for each in gates)
    first, second = gates if gates[0].began else gates[::-1]
    first.open()
    second.open()


def test_without_the_flag_declarations_are_ignored(tmp_path: Path) -> None:
    with serve_models(tmp_path) as models, ThreadPoolExecutor(2) as pool:
        model = models.load(WAITING, limited("R:1:global", "R:1", instances=2, config=TEXTS))
        gates = [Gate(models, model, tmp_path / f"{number}", pool) for number in range(2)]
        wait_until(lambda: all(each.began for each in gates), "both to execute")
        for each in gates:
            each.open()


@contextmanager
def refusing(directory: Path, *flags: str) -> Iterator[Callable[[str], str]]:
    """Loads a configuration on a server with these flags: what the server says."""
    with serve_models(directory, RATE_LIMITER, *flags) as models:
        yield lambda config: models.load_error(WAITING, config)


def test_what_exceeds_the_pools_of_the_flags_is_not_loaded(tmp_path: Path) -> None:
    limits = ("--rate-limit-resource=R:3", "--rate-limit-resource=G:2:7")
    with refusing(tmp_path, *limits) as error:
        texts = [error(limited(each)) for each in ("R:4", "G:3:global", "other:1")]
    ends = [("R", 3, 4), ("G", 2, 3), ("other", 0, 1)]
    for number, (text, (name, limit, needed)) in enumerate(zip(texts, ends, strict=True), 1):
        assert text == (
            f"load failed for model 'm{number}': version 1 is at UNAVAILABLE state: Invalid argument: Resource count "
            f'for "{name}" is limited to {limit} which will prevent scheduling of one or more model instances, the '
            f"minimum required count is {needed};\n"
        )


def test_a_resource_is_global_or_of_devices(models: Models) -> None:
    name = models.new_name()
    models.load(WAITING, limited(f"{name}:2:global"))
    text = models.load_error(WAITING, limited(f"{name}:1"), name=name)
    assert text == (
        f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Invalid argument: Resource \"{name}\" is "
        "present as both global and device-specific resource in the model configuration.;\n"
    )
    models.load(WAITING, limited(f"{name}:1:global"))


@pytest.mark.parametrize("instances", [1, 2])
def test_instances_in_the_server_need_their_resources_too(
    models: Models, gate: Callable[[str], Gate], instances: int
) -> None:
    holder = models.load(WAITING, limited("inside:1:global", config=TEXTS))
    text = limited("inside:1:global", instances=instances, config=FLOATS.replace('"IN"', '"INPUT0"'))
    name = models.load_config('backend: "identity"\n' + text.replace('"OUT"', '"OUTPUT0"'))
    held = gate(holder)
    wait_until(lambda: held.began, "it to execute")
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(urlopen, f"http://{models.server.http}/v2/models/{name}/infer", body.encode())
        pending = f'nv_inference_pending_request_count{{model="{name}",version="1"}} 1'
        wait_until(
            lambda: pending in models.server.get("/metrics", models.server.metrics)[1].decode(), "it to wait"
        )
        held.open()
        with answer.result(60) as response:
            assert response.status == 200
