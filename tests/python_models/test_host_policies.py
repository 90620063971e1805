"""Instances that run on the processors of their host policy, in the server and in processes of their own."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.python_models.support import FLOATS, Models, http_inputs, kill, serve_models
from tests.support.onnx_models import write_model
from tests.support.waiting import wait_until

CPU = min(os.sched_getaffinity(0))
OTHERS = os.sched_getaffinity(0)
FLAGS = (f"--host-policy=one,cpu-cores={CPU}-{CPU}", "--log-verbose=1")

WHERE = """
class TritonPythonModel:
    def execute(self, requests):
        cpus = np.array(sorted(os.sched_getaffinity(0)), np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", cpus)]) for _ in requests]
"""
ECHO = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }]
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """A server with a policy, whose models each test writes for itself."""
    with serve_models(tmp_path_factory.mktemp("models"), *FLAGS) as models:
        yield models


def group(policy: str) -> str:
    """An instance group with that policy."""
    return f'\ninstance_group [{{ kind: KIND_CPU host_policy: "{policy}" }}]'


def affinities(pid: int) -> list[str]:
    """The processors of each thread of a process."""
    found = []
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        found += [line.split()[1] for line in lines if line.startswith("Cpus_allowed_list")]
    return found


def test_a_python_model_runs_where_its_policy_says(models: Models) -> None:
    name = models.load(WHERE, FLOATS + group("one"))
    assert models.infer(name).tolist() == [CPU]
    (pid,) = models.pids(name)
    assert set(affinities(pid)) == {str(CPU)}
    kill(pid)
    wait_until(lambda: models.pids(name) not in ([], [pid]) and models.ready(name), "the model to be ready")
    assert models.infer(name).tolist() == [CPU]


def test_other_models_run_anywhere(models: Models) -> None:
    name = models.load(WHERE, FLOATS)
    assert models.infer(name).tolist() == sorted(OTHERS)


def test_a_policy_that_is_changed_makes_another_instance(models: Models) -> None:
    name = models.load(WHERE, FLOATS)
    assert models.infer(name).tolist() == sorted(OTHERS)
    (models.repository / name / "config.pbtxt").write_text(
        f'name: "{name}" backend: "python" {FLOATS}{group("one")}'
    )
    models.http.load_model(name)
    wait_until(lambda: models.infer(name).tolist() == [CPU], "the new instance to answer")


@pytest.mark.parametrize("isolated", [False, True], ids=["in the server", "isolated"])
def test_a_model_of_another_backend_runs_where_its_policy_says(models: Models, isolated: bool) -> None:
    name = models.new_name()
    parameter = 'parameters { key: "isolation" value { string_value: "process" } }' if isolated else ""
    write_model(models.repository, name, None, ECHO + parameter + group("one"))
    models.http.load_model(name)
    result = models.http.infer(name, http_inputs(IN=np.ones(4, np.float32)))
    assert result.as_numpy("OUT").tolist() == [1, 1, 1, 1]
    if isolated:
        (pid,) = models.pids(name)
        assert set(affinities(pid)) == {str(CPU)}
    else:
        assert str(CPU) in affinities(models.server.process.pid)


def test_a_policy_that_nobody_describes_is_remarked_on(models: Models) -> None:
    name = models.load(WHERE, FLOATS + group("two"))
    models.server.wait_for(
        f"instance group '{name}_0' of model '{name}' names the host policy 'two', which no --host-policy describes"
    )
    assert models.infer(name).tolist() == sorted(OTHERS)
