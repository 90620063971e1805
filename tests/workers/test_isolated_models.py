"""Models of in-process backends in processes of their own: nothing but where they run is different."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from halimede.backends.base import BackendOptions, ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import UnsupportedError
from halimede.workers.error_numbers import ERRORS
from halimede.workers.host import WorkerHost
from halimede.workers.isolated_model import IsolatedModel
from halimede.workers.isolated_worker import IsolatedWorkerModel
from halimede_worker.errors import PlainError
from tests.python_models.support import (
    Array,
    Models,
    Stream,
    http_inputs,
    is_running,
    processes,
    serve_models,
)
from tests.support import onnx_models
from tests.support.waiting import let_pass, wait_until

PLACES = ("thread", "process")

RAGGED = """
    max_batch_size: 8 dynamic_batching { preferred_batch_size: [3] max_queue_delay_microseconds: 5000000 }
    input { name: "RAGGED" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [1] }
    batch_input {
        kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO
        target_name: "OFFSETS" data_type: TYPE_FP32 source_input: "RAGGED"
    }
"""
OPTIONAL = """
    input [
        { name: "INPUT0" data_type: TYPE_FP32 dims: [2] },
        { name: "BIAS" data_type: TYPE_FP32 dims: [2] optional: true }
    ]
"""
ONE_INSTANCE = "instance_group { kind: KIND_CPU count: 1 }"
IDENTITY = """
    backend: "identity" instance_group { count: 1 }
    input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }
"""
SQUARE = """
    backend: "square" model_transaction_policy { decoupled: true } instance_group { count: 1 }
    input { name: "IN" data_type: TYPE_INT32 dims: 1 }
    output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    flags = ("--backend-config=onnxruntime,default-max-batch-size=7",)
    with serve_models(tmp_path_factory.mktemp("models"), *flags) as models:
        yield models


def write(
    models: Models, name: str, place: str, config: str = "", onnx_model: onnx.ModelProto | None = None
) -> str:
    """A new model, not loaded, with the parameter `isolation`: its name."""
    if "backend:" not in config:
        config = 'backend: "onnxruntime"\n' + config
    config += f'\nparameters {{ key: "isolation" value {{ string_value: "{place}" }} }}'
    name = f"{name}-{place}"
    onnx_models.write_model(models.repository, name, onnx_model, config)
    return name


def load(
    models: Models, name: str, place: str, config: str = "", onnx_model: onnx.ModelProto | None = None
) -> str:
    """A new model, loaded: its name."""
    name = write(models, name, place, config, onnx_model)
    models.http.load_model(name)
    return name


def load_error(models: Models, name: str) -> str:
    """Why the model cannot be loaded."""
    with pytest.raises(InferenceServerException) as caught:
        models.http.load_model(name)
    return str(caught.value.message())


def infer(models: Models, name: str, wanted: tuple[str, ...] = (), **arrays: Array) -> dict[str, Array]:
    """The outputs of one request."""
    outputs = [httpclient.InferRequestedOutput(output) for output in wanted] or None
    result = models.http.infer(name, http_inputs(**arrays), outputs=outputs)
    names = [output["name"] for output in result.get_response()["outputs"]]
    return {name: result.as_numpy(name) for name in names}


def infer_error(models: Models, name: str, **arrays: Array) -> tuple[str, str]:
    """Status and message of a request that fails."""
    with pytest.raises(InferenceServerException) as caught:
        models.http.infer(name, http_inputs(**arrays))
    return str(caught.value.status()), str(caught.value.message()).replace(name, "NAME")


def at_once(models: Models, name: str, requests: list[dict[str, Array]]) -> list[Any]:
    """The outputs, or the error's text, of each of the requests, which are sent together."""
    outcomes: list[Any] = [None] * len(requests)

    def ask(index: int) -> None:
        with httpclient.InferenceServerClient(models.server.http) as client:
            try:
                result = client.infer(name, http_inputs(**requests[index]))
                output = result.get_response()["outputs"][0]["name"]
                outcomes[index] = result.as_numpy(output).tolist()
            except InferenceServerException as error:
                outcomes[index] = (str(error.status()), str(error.message()).replace(name, "NAME"))

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def pids(models: Models, begin: str) -> list[int]:
    """The processes of the instances whose names begin so, with at most six letters."""
    found = processes(models.server.process.pid)
    return [pid for pid, name in found.items() if name.startswith(f"halimede-{begin}")]


def test_the_server_never_has_the_framework(tmp_path: Path) -> None:
    with serve_models(tmp_path) as models:
        name = load(models, "alone", "process", ONE_INSTANCE, onnx_models.identity())
        (pid,) = pids(models, "alone")
        assert infer(models, name, INPUT0=np.ones((1, 16), np.float32))["OUTPUT0"].sum() == 16
        assert "onnxruntime" in Path(f"/proc/{pid}/maps").read_text()
        assert "onnxruntime" not in Path(f"/proc/{models.server.process.pid}/maps").read_text()
        models.http.unload_model(name)
        wait_until(lambda: not is_running(pid), "its process to end")
        assert "onnxruntime" not in Path(f"/proc/{models.server.process.pid}/maps").read_text()


@pytest.mark.parametrize("place", PLACES)
def test_tensors_of_all_sizes_come_back(models: Models, place: str) -> None:
    name = load(models, "sizes", place, "", onnx_models.add_sub(dims=("n",)))
    assert models.http.get_model_config(name)["max_batch_size"] == 7  # the settings reach the backend
    for size in (0, 1, 16, 5000, 1_000_003):
        x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        outputs = infer(models, name, INPUT0=x, INPUT1=x)
        assert np.array_equal(outputs["OUTPUT0"], x + x)
        assert np.array_equal(outputs["OUTPUT1"], x - x)
    assert list(infer(models, name, ("OUTPUT1",), INPUT0=x, INPUT1=x)) == ["OUTPUT1"]


@pytest.mark.parametrize("place", PLACES)
def test_strings_and_optional_inputs(models: Models, place: str) -> None:
    texts = np.array([["héllo".encode(), b""], [b"a" * 30_000, b"x"]], np.object_)
    name = load(models, "texts", place, "", onnx_models.string_identity())
    assert infer(models, name, INPUT0=texts)["OUTPUT0"].tolist() == texts.tolist()
    name = load(models, "optional", place, OPTIONAL, onnx_models.with_default_input())
    assert infer(models, name, INPUT0=np.ones(2, np.float32))["OUTPUT0"].tolist() == [11, 21]
    both = infer(models, name, INPUT0=np.ones(2, np.float32), BIAS=np.ones(2, np.float32))
    assert both["OUTPUT0"].tolist() == [2, 2]


@pytest.mark.parametrize("place", PLACES)
def test_ragged_requests_run_as_one_batch(models: Models, place: str) -> None:
    name = load(models, "ragged", place, RAGGED + ONE_INSTANCE, onnx_models.ragged_sum())
    rows: list[list[float]] = [[1, 2, 3], [10], [4, 5]]
    sums = at_once(models, name, [{"RAGGED": np.array([row], np.float32)} for row in rows])
    assert sums == [[[6]], [[10]], [[9]]]
    statistics = models.statistics(name)
    assert (statistics["inference_count"], statistics["execution_count"]) == (3, 1)


def test_errors_of_requests_are_the_same(models: Models) -> None:
    told = []
    for place in PLACES:
        name = load(models, "gather", place, "", onnx_models.gather_by_index())
        x = np.ones((1, 4), np.float32)
        bad = infer_error(models, name, INPUT0=x, INDEX=np.array([[9]]))
        wrong = infer_error(models, name, INPUT0=np.ones((1, 3), np.float32), INDEX=np.array([[0]]))
        assert infer(models, name, INPUT0=x, INDEX=np.array([[1]]))["OUTPUT0"].tolist() == [[1]]
        text = load(models, "utf8", place, "", onnx_models.string_identity())
        undecodable = infer_error(models, text, INPUT0=np.array([[b"\xff", b""]], np.object_))
        statistics = models.statistics(name)
        counts = (
            statistics["execution_count"],
            statistics["inference_stats"]["success"]["count"],
            statistics["inference_stats"]["fail"]["count"],
        )
        told.append((bad, wrong, undecodable, counts))
    assert told[0] == told[1]
    assert told[1][0][0] == "500"
    assert "onnx runtime error 1" in told[1][0][1]
    assert told[1][2][0] == "400"
    assert "Traceback" not in models.server.log


def test_one_bad_request_of_a_batch_fails_alone(models: Models) -> None:
    batching = "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 5000000 }"
    name = load(models, "neighbour", "process", batching + ONE_INSTANCE, onnx_models.gather_by_index())
    x = np.ones((1, 4), np.float32)
    good, bad = at_once(models, name, [{"INPUT0": x, "INDEX": np.array([[index]])} for index in (1, 9)])
    assert good == [[1]]
    assert "onnx runtime error 1" in bad[1]


def test_errors_of_loads_are_the_same(models: Models) -> None:
    warm = """
        max_batch_size: 4
        model_warmup { name: "w" batch_size: 9 inputs { key: "INPUT0" value {
            data_type: TYPE_FP32 dims: 16 zero_data: true } } }
    """
    cases = {
        "missing": ("", None),
        "outputs": (
            'max_batch_size: 4 output { name: "NONE" data_type: TYPE_FP32 dims: 16 }',
            onnx_models.identity(),
        ),
        "batching": (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: [9] }",
            onnx_models.identity(),
        ),
        "parameter": (
            'parameters { key: "execution_mode" value { string_value: "x" } }',
            onnx_models.identity(),
        ),
        "warmup": (warm, onnx_models.identity()),
    }
    before = set(pids(models, ""))
    for case, (config, onnx_model) in cases.items():
        told = []
        for place in PLACES:
            name = write(models, case, place, config, onnx_model)
            told.append(load_error(models, name).replace(name, "NAME"))
        assert told[0] == told[1]
        assert "Stub" not in told[1], case
    for place in PLACES:
        name = write(models, "broken", place, "", onnx_models.identity())
        (models.repository / name / "1" / "model.onnx").write_bytes(b"\x08\x08")
        assert "onnx runtime error 2: Load model from" in load_error(models, name)
    wait_until(lambda: before.issuperset(pids(models, "")), "the processes of what failed to end")


def test_a_missing_framework_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "halimede.backends.openvino.backend", None)
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "halimede.backends.openvino.backend")
    config = ModelConfig(name="m", backend="openvino")
    model = IsolatedModel(ModelSource("m", 1, Path("/m"), config), BackendOptions(), cast(WorkerHost, None))
    with pytest.raises(PlainError, match=r'pip install "halimede\[openvino\]"') as caught:
        IsolatedWorkerModel(dict(model._settings)).complete_config(config.SerializeToString())  # noqa: SLF001 - what its process is told
    assert ERRORS[caught.value.number] is UnsupportedError


def test_instances_share_the_threads_out() -> None:
    config = ModelConfig(name="m", backend="onnxruntime")
    config.instance_group.add(name="m_0", count=3)
    config.instance_group.add(name="m_1", count=1)
    source = ModelSource("m", 1, Path("/m"), config)
    for threads, share in ((16, 4), (2, 1)):
        model = IsolatedModel(source, BackendOptions(cpu_threads=threads), cast(WorkerHost, None))
        assert IsolatedWorkerModel(dict(model._settings))._settings["backend"]["cpu_threads"] == share  # noqa: SLF001 - what its process is told


@pytest.mark.parametrize("backend", ["onnxruntime", "python"])
def test_other_values_are_refused(models: Models, backend: str) -> None:
    name = write(models, f"refused-{backend}", "fork", f'backend: "{backend}"', onnx_models.identity())
    expected = "parameter 'isolation' must be one of 'none', 'process', 'thread', got 'fork'"
    assert expected in load_error(models, name)


def test_each_instance_has_a_process_that_ends_with_it(models: Models) -> None:
    config = "instance_group { kind: KIND_CPU count: 3 }"
    name = load(models, "many", "process", config, onnx_models.identity())
    own = pids(models, "many")
    assert len(own) == 3
    models.http.unload_model(name)
    wait_until(lambda: not any(map(is_running, own)), "the processes to end")


@pytest.mark.parametrize(
    ("name", "config", "onnx_model"),
    [
        ("twins", IDENTITY.replace("instance_group { count: 1 }", ""), None),
        ("alike", "", onnx_models.identity(dims=(2,), batching=False)),
    ],
    ids=["identity", "onnxruntime"],
)
def test_instances_come_and_go_while_the_others_stay(
    models: Models, name: str, config: str, onnx_model: onnx.ModelProto | None
) -> None:
    model = f"{name}-process"

    def change(count: int, group: str = "") -> set[int]:
        """The processes when there are so many instances, which all serve."""
        groups = f'instance_group {{ name: "{group}" kind: KIND_CPU count: {count} }}'
        written = (models.repository / model).exists()  # a file that is written anew has changed
        load(models, name, "process", config + groups, None if written else onnx_model)
        wait_until(lambda: len(pids(models, name) + pids(models, "other")) == count, "the processes")
        assert at_once(models, model, [{"INPUT0": np.ones(2, np.float32)}] * 8) == [[1, 1]] * 8
        return {*pids(models, name), *pids(models, "other")}

    one = change(1)
    three = change(3)
    assert one < three
    two = change(2)
    assert one < two < three
    renamed = change(3, "other")
    assert two < renamed
    assert set(pids(models, "other")) == renamed - two
    assert models.statistics(model)["inference_count"] == 32, "it was not loaded again"
    models.http.unload_model(model)
    wait_until(lambda: not any(map(is_running, renamed)), "the processes to end")


def test_a_crash_fails_its_request_and_the_instance_comes_back(models: Models) -> None:
    delay = 'parameters { key: "execute_delay_ms" value { string_value: "1000" } }'
    name = load(models, "crash", "process", IDENTITY + delay)
    (pid,) = pids(models, "crash")
    x = np.ones(1, np.float32)
    executing = f'halimede_inference_executing_request_count{{model="{name}",version="1"}} 1'

    def kill() -> None:
        wait_until(
            lambda: executing in models.server.get("/metrics", models.server.metrics)[1].decode(),
            "it to execute",
        )
        let_pass(0.2, "until its process has taken it")
        os.kill(pid, signal.SIGABRT)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        ((status, message),) = at_once(models, name, [{"INPUT0": x}])
        killing.result(60)
    assert status == "500"
    assert message.startswith("Stub process 'NAME_0_0' is not healthy. It crashed with SIGABRT")
    assert infer(models, name, INPUT0=x)["OUTPUT0"].tolist() == [1]
    assert pids(models, "crash") != [pid]


def test_a_client_that_leaves_disturbs_nobody(models: Models) -> None:
    delay = 'parameters { key: "execute_delay_ms" value { string_value: "300" } }'
    name = load(models, "left", "process", IDENTITY + delay)
    (pid,) = pids(models, "left")
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'
    for _ in range(3):  # one that runs and two that wait
        leaver = HTTPConnection(models.server.http)
        leaver.request("POST", f"/v2/models/{name}/infer", body)
        leaver.close()
    assert infer(models, name, INPUT0=np.ones(2, np.float32))["OUTPUT0"].tolist() == [1, 1]
    assert pids(models, "left") == [pid]


def test_parameters_of_responses_come_along(models: Models) -> None:
    name = load(models, "parameters", "process", IDENTITY)
    large = np.arange(1 << 20, dtype=np.float32)
    result = models.http.infer(name, http_inputs(INPUT0=large))
    assert np.array_equal(result.as_numpy("OUTPUT0"), large)
    assert result.get_response()["parameters"] == {
        "param0": "an example string parameter",
        "param1": 42,
        "param2": False,
        "param3": 123.123,
    }


def test_a_decoupled_model_streams_and_heeds_clients_that_leave(models: Models) -> None:
    name = load(models, "square", "process", SQUARE)
    stream = Stream(models)
    stream.send(name, np.array([3], np.int32))
    answers = stream.take_all(4)
    assert [answer.value for answer in answers] == [3, 3, 3, None]
    assert [answer.final for answer in answers] == [False, False, False, True]
    stream.send(name, np.array([2_000_000_000], np.int32))
    assert stream.take().value == 2_000_000_000
    stream.close(cancel=True)
    stream = Stream(models)
    stream.send(name, np.array([1], np.int32))  # the only instance is free again
    assert stream.take().value == 1
    stream.close()


def test_a_model_of_low_priority_is_nice_to_others(models: Models) -> None:
    load(models, "nice", "process", IDENTITY + "optimization { priority: PRIORITY_MIN }")
    (pid,) = pids(models, "nice")
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19


def test_warm_up_runs_in_the_process(models: Models) -> None:
    warm = """
        max_batch_size: 4
        model_warmup { name: "w" batch_size: 2 count: 3
            inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: 16 zero_data: true } } }
    """
    name = load(models, "warm", "process", warm + ONE_INSTANCE, onnx_models.identity())
    assert models.statistics(name)["execution_count"] == 3
