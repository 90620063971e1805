"""The test backend `implicit_state`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnsupportedError
from halimede.core.requests import InferResponse
from tests.backends.helpers import Loaded, load, request
from tests.support.server import start_server

FLAGS = "fp32_false_true: [ 0, 1 ]"
CONTROLS = " ".join(
    f'control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} {FLAGS} }} }}'
    for kind in ("START", "READY", "END")
)
INITIAL = 'initial_state { name: "init" data_type: TYPE_INT32 dims: 1 zero_data: true }'
STATE = f'state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: 1 {INITIAL} }}'
CONFIG = f"""
    backend: "implicit_state" max_batch_size: 0
    sequence_batching {{ {CONTROLS} {STATE} }}
    input {{ name: "INPUT" data_type: TYPE_INT32 dims: 1 }}
    input {{ name: "TEST_CASE" data_type: TYPE_INT32 dims: 1 }}
    output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: 1 }}
"""

GROWABLE_STATE = (
    'state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT8 dims: [ 1024, 1024 ] '
    "use_same_buffer_for_input_output: true use_growable_memory: true }"
)
GROWABLE = (
    CONFIG.replace(STATE, GROWABLE_STATE)
    + """
    output { name: "OUTPUT_STATE" data_type: TYPE_INT8 dims: 1 }
    instance_group { count: 1 kind: KIND_GPU }
"""
)
"""The model `growable_memory` of Triton's tests."""


def run(model: Loaded, case: int, value: int = 1, *, start: bool = False) -> InferResponse:
    """The response to a request of the sequence 1."""
    made = request(
        {
            "INPUT": np.array([value], np.int32),
            "TEST_CASE": np.array([case], np.int32),
            "START": np.array([start], np.float32),
            "READY": np.array([1], np.float32),
            "END": np.array([0], np.float32),
        }
    )
    made.sequence_id, made.sequence_key, made.sequence_start = 1, 1, start
    batch = Batch(model.signature, [made], 1)
    execute(model.instance, batch)
    return batch.responses[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.InferenceServerClient]:
    """A client of a server of models as Triton's tests have them."""
    repository = tmp_path_factory.mktemp("repository")
    configs = {
        "no_implicit_state": CONFIG.replace(STATE, ""),
        "wrong_internal_state": CONFIG.replace(INITIAL, ""),
        "no_state_update": CONFIG,
        "single_state_buffer": CONFIG.replace(INITIAL, "use_same_buffer_for_input_output: true"),
        "growable_memory": GROWABLE,
    }
    for name, config in configs.items():
        (repository / name / "1").mkdir(parents=True)
        Path(repository / name / "config.pbtxt").write_text(config)
    with (
        start_server(repository, "--cpu-fallback=true") as running,
        client.InferenceServerClient(running.http) as opened,
    ):
        yield opened


def ask(server: client.InferenceServerClient, model: str, case: int, value: int, flags: str) -> Any:
    """The output of a request of the sequence 3; S starts it, E ends it."""
    tensors = []
    for name, number in (("INPUT", value), ("TEST_CASE", case)):
        tensors.append(client.InferInput(name, [1], "INT32"))
        tensors[-1].set_data_from_numpy(np.array([number], np.int32))
    result = server.infer(
        model, tensors, sequence_id=3, sequence_start="S" in flags, sequence_end="E" in flags
    )
    output = result.as_numpy("OUTPUT")
    return None if output is None else output.tolist()


def test_a_server_answers_as_tritons_tests_ask(server: client.InferenceServerClient) -> None:
    flags = ["S", *[""] * 10, "E"]
    assert [ask(server, "no_state_update", 1, 1, each) for each in flags] == [[1]] * 12
    assert [ask(server, "single_state_buffer", 2, 1, each) for each in ("S", "", "E")] == [None] * 3


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            "no_implicit_state",
            (
                "unable to add state 'undefined_state'. State configuration is missing for model "
                "'no_implicit_state'."
            ),
        ),
        ("wrong_internal_state", "state 'undefined_state' is not a valid state name."),
    ],
)
def test_a_server_tells_what_is_no_state(server: client.InferenceServerClient, model: str, text: str) -> None:
    with pytest.raises(InferenceServerException) as error:
        ask(server, model, 0, 1, "SE")
    assert error.value.message() == text


def test_a_growable_state_is_served_on_cpus_but_has_no_memory_of_a_gpu(
    server: client.InferenceServerClient,
) -> None:
    """As of Triton without a GPU: the state itself cannot grow there, and other requests are answered."""
    assert server.is_model_ready("growable_memory")
    with pytest.raises(InferenceServerException) as error:
        ask(server, "growable_memory", 3, 1, "S")
    assert error.value.message() == "growable memory should always provide memory in GPU"
    assert [ask(server, "growable_memory", 1, 5, each) for each in ("S", "", "E")] == [[5]] * 3


def test_a_growable_state_needs_a_gpu_unless_it_may_run_on_cpus(tmp_path: Path) -> None:
    (tmp_path / "growable_memory" / "1").mkdir(parents=True)
    (tmp_path / "growable_memory" / "config.pbtxt").write_text(GROWABLE)
    with start_server(tmp_path, "--strict-readiness=false", "--exit-on-error=false") as running:
        assert running.get("/v2/models/growable_memory/ready")[0] == 400
        running.wait_for("the backend implicit_state runs on CPUs only")


def failure(response: InferResponse) -> HalimedeError:
    assert response.error is not None
    return response.error


def test_a_state_that_is_not_updated_stays(tmp_path: Path) -> None:
    model = load(tmp_path, CONFIG)
    for start in (True, False, False):
        assert run(model, 1, 5, start=start).outputs["OUTPUT"].array.tolist() == [5]


def test_a_state_that_is_not_configured_is_an_error(tmp_path: Path) -> None:
    error = failure(run(load(tmp_path, CONFIG), 0, start=True))
    assert isinstance(error, InvalidArgumentError)
    assert error.message == "state 'undefined_state' is not a valid state name."


@pytest.mark.parametrize(("case", "state"), [(0, "undefined_state"), (1, "OUTPUT_STATE")])
def test_a_model_without_states_has_none_to_add(tmp_path: Path, case: int, state: str) -> None:
    error = failure(run(load(tmp_path, CONFIG.replace(STATE, "")), case, start=True))
    assert isinstance(error, InvalidArgumentError)
    assert error.message == f"unable to add state '{state}'. State configuration is missing for model 'm'."


def test_a_state_may_share_its_buffer(tmp_path: Path) -> None:
    same = STATE.replace(INITIAL, "use_same_buffer_for_input_output: true")
    model = load(tmp_path, CONFIG.replace(STATE, same))
    for start in (True, False, False):
        response = run(model, 2, start=start)
        assert (response.error, response.outputs) == (None, {})


def test_a_state_does_not_grow_on_a_gpu_that_the_backend_does_not_use(tmp_path: Path) -> None:
    error = failure(run(load(tmp_path, CONFIG), 3, start=True))
    assert isinstance(error, UnsupportedError)
    assert error.message == "growable memory should always provide memory in GPU"


def test_an_unknown_test_case_is_told(tmp_path: Path) -> None:
    assert (
        failure(run(load(tmp_path, CONFIG), 4, start=True)).message
        == "there is no TEST_CASE 4; there are 0 to 3"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (CONTROLS, CONTROLS.replace('"END"', '"LAST"'), "'START', 'END' and 'READY' must be configured"),
        (
            '"INPUT_STATE"',
            '"STATE"',
            "the state must be INPUT_STATE, OUTPUT_STATE with TYPE_INT32 and dims [1], or with TYPE_INT8",
        ),
        (STATE, GROWABLE_STATE.replace("[ 1024, 1024 ]", "[ 1, 3 ]"), "or with TYPE_INT8"),
        (STATE, GROWABLE_STATE.replace("[ 1024, 1024 ]", "[ -1, -1 ]"), "or with TYPE_INT8"),
        (
            STATE,
            GROWABLE_STATE.replace("_INT8", "_INT16"),
            "the state must be INPUT_STATE, OUTPUT_STATE with TYPE_INT32 and dims [1], or with TYPE_INT8",
        ),
        ("max_batch_size: 0", "max_batch_size: 2", "needs max_batch_size: 0, got 2"),
        ('"TEST_CASE"', '"CASE"', "needs exactly these inputs: INPUT (TYPE_INT32), TEST_CASE (TYPE_INT32)"),
    ],
)
def test_what_the_backend_does_not_have_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CONFIG
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, CONFIG.replace(old, new))
    assert message in caught.value.message
