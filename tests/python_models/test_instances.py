"""Models whose number of instances changes: only the difference is initialized or finalized."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.python_models.support import DECOUPLED, FLOATS, ONES, Models, Stream, kill
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

SOURCE = """
class TritonPythonModel:
    def initialize(self, args):
        beside = os.path.join(args["model_repository"], "..", "..", args["model_name"])
        self.calls = open(beside + "-calls", "a", buffering=1)
        self.hold = beside + "-hold"
        self.name = args["model_instance_name"]
        self.calls.write(f"initialize {self.name}\\n")

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if x[0] > 1:
                self.calls.write(f"execute {self.name}\\n")
                while os.path.exists(self.hold):
                    time.sleep(0.01)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)]))
        return responses

    def finalize(self):
        self.calls.write(f"finalize {self.name}\\n")
"""
"""Notes the calls of its methods, and executes inputs above 1 for as long as there is a file `NAME-hold`."""


STREAMING = """
class TritonPythonModel:
    def initialize(self, args):
        beside = os.path.join(args["model_repository"], "..", "..", args["model_name"])
        self.calls = open(beside + "-calls", "a", buffering=1)
        self.hold = beside + "-hold"
        self.name = args["model_instance_name"]
        self.number = int(self.name.rpartition("_")[2])

    def execute(self, requests):
        for request in requests:
            self.calls.write(f"execute {self.name}\\n")  # before the first response, which tests wait for
            threading.Thread(target=self.answer, args=(request.get_response_sender(),)).start()
            while os.path.exists(self.hold + "-execute"):
                time.sleep(0.01)

    def answer(self, sender):
        sender.send(self.response())
        while os.path.exists(self.hold):
            time.sleep(0.01)
        for _ in range(20):
            sender.send(self.response())
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.calls.write(f"sent {self.name}\\n")

    def response(self):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.number], np.float32))])

    def finalize(self):
        self.calls.write(f"finalize {self.name}\\n")
"""
"""Answers each request by its instance's number, once at once and 20 times when there is no file `NAME-hold`.

An execution lasts as long as there is a file `NAME-hold-execute`.
"""


class Counted:
    """Such a model, of a new name."""

    def __init__(self, models: Models, source: str = SOURCE, config: str = "") -> None:
        self._models = models
        self.name = models.new_name()
        self._source = source
        self._config = FLOATS + config
        self._log = models.repository.parent / f"{self.name}-calls"
        self.hold = models.repository.parent / f"{self.name}-hold"

    def load(self, count: int) -> list[str]:
        """Load it with so many instances: what was called meanwhile."""
        self._write(count)
        self._models.http.load_model(self.name)
        return self.calls

    def _write(self, count: int) -> None:
        self._log.write_text("")
        config = f"{self._config}instance_group {{ count: {count} kind: KIND_CPU }}"
        file = self._models.repository / self.name / "config.pbtxt"
        if file.exists():
            file.write_text(f'backend: "python"\n{config}')
        else:
            self._models.write(self._source, config, self.name)

    @contextmanager
    def leaving(self, count: int) -> Iterator[None]:
        """Load it with fewer instances. The load is answered after the block, when those that leave have ended."""
        self._write(count)
        url = f"http://{self._models.server.http}/v2/repository/models/{self.name}/load"
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(urllib.request.urlopen, url, b"{}", 120)
            wait_until(lambda: self._count() == count, "requests to go to the instances that stay")
            yield
            with answer.result() as loaded:
                assert loaded.status == 200

    def _count(self) -> int:
        groups = self._models.http.get_model_config(self.name)["instance_group"]
        return sum(group["count"] for group in groups)

    @property
    def calls(self) -> list[str]:
        """What was called since the last load began."""
        return sorted(complete_lines(self._log).splitlines())

    @property
    def processes(self) -> set[int]:
        """Its worker processes."""
        return set(self._models.pids(self.name))


def test_only_the_difference_in_instances_is_initialized_or_finalized(models: Models) -> None:
    model = Counted(models)
    assert model.load(3) == [f"initialize {model.name}_0_{n}" for n in range(3)]
    three = model.processes
    np.testing.assert_array_equal(models.infer(model.name), ONES)
    assert model.load(4) == [f"initialize {model.name}_0_3"]
    assert len(model.processes) == 4
    assert three < model.processes
    assert models.statistics(model.name)["inference_count"] == 1, "it was not loaded again"
    model.load(2)
    wait_until(
        lambda: model.calls == [f"finalize {model.name}_0_2", f"finalize {model.name}_0_3"],
        "two are finalized",
    )
    wait_until(lambda: len(model.processes) == 2, "two processes are left")
    assert model.processes < three
    np.testing.assert_array_equal(models.infer(model.name), ONES)
    models.http.unload_model(model.name)
    wait_until(lambda: not model.processes, "no process is left")


def test_requests_under_way_finish_on_instances_that_leave(models: Models) -> None:
    model = Counted(models)
    model.load(3)
    model.hold.write_text("")
    outcomes: list[object] = []
    thread = threading.Thread(
        target=lambda: outcomes.extend(models.infer_at_once(model.name, [2 * ONES] * 3))
    )
    thread.start()
    wait_until(lambda: sum(call.startswith("execute") for call in model.calls) == 3, "three executions began")
    with model.leaving(1):
        assert model.calls == []
        assert len(model.processes) == 3
        model.hold.unlink()
        thread.join(60)
    np.testing.assert_array_equal(np.array(outcomes), [2 * ONES] * 3)
    wait_until(
        lambda: model.calls == [f"finalize {model.name}_0_1", f"finalize {model.name}_0_2"],
        "two are finalized",
    )
    wait_until(lambda: len(model.processes) == 1, "one process is left")
    np.testing.assert_array_equal(models.infer(model.name), ONES)


def streams_on_each(models: Models, name: str, count: int) -> list[Stream]:
    """Streams with a request each under way, whose first response has come; the n-th by the n-th instance."""
    held = models.repository.parent / f"{name}-hold-execute"
    held.write_text("")  # so that each instance gets one
    streams = [Stream(models) for _ in range(count)]
    for stream in streams:
        stream.send(name)
    numbers = [stream.take().value for stream in streams]
    held.unlink()
    assert sorted(numbers, key=str) == list(range(count))
    return [stream for _, stream in sorted(zip(numbers, streams, strict=True), key=lambda pair: str(pair[0]))]


def rest_of(stream: Stream) -> list[float | None]:
    """The values of the responses that are still to come, but for the final one, which is empty."""
    *values, last = stream.take_all(21)
    assert last.final
    assert not any(answer.error or answer.final for answer in values)
    stream.close()
    return [answer.value for answer in values]


def test_streams_under_way_go_on_to_their_end_on_instances_that_leave(models: Models) -> None:
    model = Counted(models, STREAMING, DECOUPLED)
    model.load(3)
    model.hold.write_text("")
    streams = streams_on_each(models, model.name, 3)
    with model.leaving(1):
        assert model.calls == []
        assert len(model.processes) == 3
        late = Stream(models)
        late.send(model.name)
        assert late.take().value == 0, "new requests go to the instance that stays"
        model.hold.unlink()
        for number, stream in enumerate(streams):
            assert rest_of(stream) == [number] * 20
        assert rest_of(late) == [0] * 20
    wait_until(
        lambda: (
            [call for call in model.calls if "finalize" in call]
            == [f"finalize {model.name}_0_1", f"finalize {model.name}_0_2"]
        ),
        "two are finalized",
    )
    wait_until(lambda: len(model.processes) == 1, "one process is left")
    assert models.statistics(model.name)["inference_stats"]["fail"]["count"] == 0


def test_added_instances_serve_streams_beside_those_under_way(models: Models) -> None:
    model = Counted(models, STREAMING, DECOUPLED)
    model.load(1)
    model.hold.write_text("")
    (first,) = streams_on_each(models, model.name, 1)
    (present,) = model.processes
    model.load(3)
    assert present in model.processes
    assert len(model.processes) == 3
    streams = streams_on_each(models, model.name, 3)
    model.hold.unlink()
    assert rest_of(first) == [0] * 20
    for number, stream in enumerate(streams):
        assert rest_of(stream) == [number] * 20


def test_streams_of_a_leaving_instance_fail_when_its_process_dies(models: Models) -> None:
    model = Counted(models, STREAMING, DECOUPLED)
    model.load(1)
    present = model.processes
    model.load(2)
    model.hold.write_text("")
    stays, leaves = streams_on_each(models, model.name, 2)
    with model.leaving(1):
        (leaving,) = model.processes - present
        kill(leaving)
        assert leaves.take().error.startswith(
            f"Stub process '{model.name}_0_1' is not healthy. It was killed by SIGKILL"
        )
        leaves.close()
    wait_until(lambda: model.processes == present, "no process takes its place")
    model.hold.unlink()
    assert rest_of(stays) == [0] * 20
    late = Stream(models)
    late.send(model.name)
    assert late.take().value == 0
    assert rest_of(late) == [0] * 20
    assert model.processes == present


SLOW_END = SOURCE.replace(
    "def finalize(self):\n",
    "def finalize(self):\n        time.sleep(0.3)  # sleeps: the work of a model that writes something\n",
)


def test_loads_and_unloads_are_answered_when_what_they_end_is_finalized(models: Models) -> None:
    model = Counted(models, SLOW_END)
    model.load(3)
    finalized = [f"finalize {model.name}_0_{number}" for number in range(3)]
    assert model.load(1) == finalized[1:]
    file = models.repository / model.name / "1" / "model.py"
    file.write_text(file.read_text() + "\n# another version\n")
    assert model.load(1) == [finalized[0], f"initialize {model.name}_0_0"]
    models.http.unload_model(model.name)
    assert model.calls == sorted([*finalized[:1] * 2, f"initialize {model.name}_0_0"])


def test_loads_wait_for_instances_without_sequences_and_not_for_those_with_one(models: Models) -> None:
    model = Counted(models, config="sequence_batching { direct { } }")
    model.load(3)
    for number in (1, 2):
        models.infer(model.name, 2 * ONES, sequence_id=number, sequence_start=True)
    busy = {call.removeprefix("execute ") for call in model.calls if call.startswith("execute")}
    assert len(busy) == 2
    calls = model.load(1)
    leaving = {f"{model.name}_0_{number}" for number in (1, 2)}
    assert calls == [f"finalize {name}" for name in sorted(leaving - busy)]
    for number in (1, 2):
        models.infer(model.name, ONES, sequence_id=number, sequence_end=True)
    wait_until(lambda: model.calls == [f"finalize {name}" for name in sorted(leaving)], "all are finalized")


CONTROLLING = """
class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        self.beside = os.path.join(args["model_repository"], "..", "..", self.name)

    def execute(self, requests):
        for _ in requests:
            HERE
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]) for _ in requests]

    def finalize(self):
        try:
            IN_THE_END
        finally:  # whether that is possible then or not
            open(self.beside + "-finalized", "w").close()
"""
FEWER = """pb_utils.load_model(self.name, config=open(self.beside + "-config").read())"""


@pytest.mark.parametrize(
    ("call", "at_the_end"),
    [
        (FEWER, "pass"),
        ("pb_utils.unload_model(self.name)", "pass"),
        ("pass", "pb_utils.unload_model(self.name)"),
        ("pass", "pb_utils.load_model(self.name)"),
    ],
)
def test_model_that_loads_or_unloads_itself_does_not_wait_for_its_own_end(
    call: str, at_the_end: str, models: Models
) -> None:
    name = models.new_name()
    source = CONTROLLING.replace("HERE", call).replace("IN_THE_END", at_the_end)
    two = "instance_group {{ count: {} kind: KIND_CPU }}".format
    models.load(source, FLOATS + two(2), name)
    config = models.http.get_model_config(name)
    config["instance_group"][0]["count"] = 1
    beside = models.repository.parent / name
    Path(f"{beside}-config").write_text(json.dumps(config))
    requests = 1 if "unload" in call else 2  # one that came after the unload would be refused
    answers = models.infer_at_once(name, [ONES] * requests)
    np.testing.assert_array_equal(np.array(answers), [np.ones(1, np.float32)] * requests)
    models.http.unload_model(name)
    wait_until(Path(f"{beside}-finalized").exists, "it is finalized")
    models.http.unload_model(name)
    wait_until(lambda: not models.pids(name), "no process is left")
