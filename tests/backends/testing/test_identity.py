from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as client

from halimede.backends.base import BackendOptions
from halimede.backends.testing import identity
from halimede.core.datatypes import ALL, BYTES, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.traces import Trace
from tests.backends.helpers import Loaded, floats, load, request, source_of, wire
from tests.support.server import start_server
from tests.support.traces import await_traces

CONFIG = """
    backend: "identity" max_batch_size: 8
    input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }
    input { name: "INPUT1" data_type: TYPE_FP32 dims: [-1] }
    output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [-1] }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }
"""


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the backend slept each time, which takes no time."""
    naps: list[float] = []
    monkeypatch.setattr(identity, "sleep", naps.append)
    return naps


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def test_inputs_go_to_the_outputs_of_their_number(tmp_path: Path) -> None:
    outputs = load(tmp_path, CONFIG)(INPUT0=floats([1]), INPUT1=floats([2, 3]))
    assert {name: array.tolist() for name, array in outputs.items()} == {
        "OUTPUT0": [[1]],
        "OUTPUT1": [[2, 3]],
    }
    assert list(outputs) == ["OUTPUT1", "OUTPUT0"]


def test_other_names_go_by_position(tmp_path: Path) -> None:
    text = CONFIG.replace("INPUT0", "left").replace("INPUT1", "right")
    outputs = load(tmp_path, text)(left=floats([1]), right=floats([2]))
    assert outputs["OUTPUT1"].tolist() == [[1]]
    assert outputs["OUTPUT0"].tolist() == [[2]]


def test_every_response_is_its_own_requests_bytes_uncopied(tmp_path: Path) -> None:
    model = load(tmp_path, CONFIG)
    requests = [
        request({"INPUT0": floats([i] * i), "INPUT1": floats([-i])}, ("OUTPUT0",)) for i in range(1, 4)
    ]
    responses = model.run(*requests)
    for each, response in zip(requests, responses, strict=True):
        assert list(response.outputs) == ["OUTPUT0"]
        assert response.outputs["OUTPUT0"].data is each.inputs["INPUT0"].data


@pytest.mark.parametrize("datatype", ALL, ids=lambda datatype: datatype.name)
def test_every_datatype_passes(tmp_path: Path, datatype: Datatype) -> None:
    text = f"""
        backend: "identity"
        input {{ name: "IN" data_type: {datatype.config_name} dims: [2] }}
        output {{ name: "OUT" data_type: {datatype.config_name} dims: [2] }}
    """
    array = (
        np.array([b"\xff\0", b""], np.object_)
        if datatype is BYTES
        else np.array([1, 0]).astype(datatype.numpy)
    )
    tensor = wire(array, datatype)
    (response,) = load(tmp_path, text).run(request({"IN": tensor}))
    assert bytes(response.outputs["OUT"].data) == bytes(tensor.data)


def test_reshape_of_input_and_output_is_undone(tmp_path: Path) -> None:
    text = """
        backend: "identity" max_batch_size: 2
        input { name: "IN" data_type: TYPE_FP32 dims: [-1, 1] reshape { shape: [-1] } }
        output { name: "OUT" data_type: TYPE_FP32 dims: [1, -1] reshape { shape: [-1] } }
    """
    model = load(tmp_path, text)
    assert model(IN=floats([1, 2, 3]).reshape(1, 3, 1))["OUT"].shape == (1, 1, 3)


@pytest.mark.parametrize(("datatype", "zero"), [("FP32", 0.0), ("INT8", 0), ("BOOL", False), ("STRING", b"")])
@pytest.mark.parametrize(("dims", "tail"), [("-1", (1,)), ("2, -1", (2, 1)), ("3", (3,))])
def test_optional_input_that_is_left_out_comes_back_as_zeros(
    tmp_path: Path, datatype: str, zero: object, dims: str, tail: tuple[int, ...]
) -> None:
    optional = f"data_type: TYPE_{datatype} dims: [{dims}]"
    text = CONFIG.replace(
        '"INPUT1" data_type: TYPE_FP32 dims: [-1]', f'"INPUT1" {optional} optional: true'
    ).replace('"OUTPUT1" data_type: TYPE_FP32 dims: [-1]', f'"OUTPUT1" {optional}')
    each = request({"INPUT0": floats([1], [2])})
    each.batch_size = 2
    (response,) = load(tmp_path, text).run(each)
    zeros = response.outputs["OUTPUT1"].array
    assert zeros.shape == (2, *tail)
    assert set(zeros.reshape(-1).tolist()) == {zero}


def test_optional_input_that_is_left_out_has_no_output_that_was_not_asked_for(tmp_path: Path) -> None:
    text = CONFIG.replace('"INPUT1" data_type: TYPE_FP32', '"INPUT1" data_type: TYPE_FP32 optional: true')
    (response,) = load(tmp_path, text).run(request({"INPUT0": floats([1])}, ("OUTPUT0",)))
    assert list(response.outputs) == ["OUTPUT0"]


def test_responses_carry_the_four_parameters(tmp_path: Path) -> None:
    model = load(tmp_path, CONFIG)
    first, second = model.run(*[request({"INPUT0": floats([1]), "INPUT1": floats([1])}) for _ in range(2)])
    assert first.parameters == {
        "param0": "an example string parameter",
        "param1": 42,
        "param2": False,
        "param3": 123.123,
    }
    assert first.parameters is not second.parameters


def test_delay_is_slept_off_the_loop(tmp_path: Path, slept: list[float]) -> None:
    quick = load(tmp_path, CONFIG)
    assert not quick.instance.may_block
    slow = load(tmp_path, CONFIG + parameter("execute_delay_ms", "250"))
    assert slow.instance.may_block
    slept.clear()
    slow(INPUT0=floats([1]), INPUT1=floats([1]))
    assert slept == [0.25]


@pytest.mark.parametrize(("index", "seconds"), [(0, 0.1), (1, 0.3), (2, 0.6)])
def test_delay_grows_with_the_instances_number(
    tmp_path: Path, slept: list[float], index: int, seconds: float
) -> None:
    text = CONFIG + parameter("execute_delay_ms", "100") + parameter("instance_wise_delay_multiplier", "3")
    model = Loaded(source_of(tmp_path, text), BackendOptions(), index)
    slept.clear()
    model(INPUT0=floats([1]), INPUT1=floats([1]))
    assert slept == [pytest.approx(seconds)]


def test_creation_takes_as_long_as_said(tmp_path: Path, slept: list[float]) -> None:
    load(tmp_path, CONFIG + parameter("creation_delay_sec", "4"))
    assert slept == [4]


@pytest.mark.parametrize("key", ["execute_delay_ms", "instance_wise_delay_multiplier", "creation_delay_sec"])
def test_bad_delay_is_told(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"parameter '{key}' must be an integer .* 'soon'"):
        load(tmp_path, CONFIG + parameter(key, "soon"))


class _NoRecorder:
    """Of traces that nobody waits for."""

    def child(self, parent: Trace, model_name: str, model_version: int) -> Trace:
        raise AssertionError("nothing is caused")

    def ended(self, traces: list[Trace]) -> None:
        """Nothing is done with them."""


def activities(tmp_path: Path, *, timestamps: bool = True, **parameters: str) -> list[str | int]:
    """What the model itself records of a traced request: names and times."""
    traced = request({"INPUT0": floats([1]), "INPUT1": floats([2])})
    traced.trace = Trace(_NoRecorder(), 1, "m", 1, timestamps=timestamps)
    text = "".join(parameter(key, value) for key, value in parameters.items())
    model = load(tmp_path, CONFIG + text)
    assert model.instance.may_block is (parameters.get("enable_custom_tracing") == "true")
    model.run(traced)
    return traced.trace.events


ONE = ["CUSTOM_ACTIVITY_START", "CUSTOM_ACTIVITY_END", "CUSTOM_SINGLE_ACTIVITY"]


def test_traced_requests_have_activities_of_the_model(tmp_path: Path, slept: list[float]) -> None:
    events = activities(tmp_path, enable_custom_tracing="true")
    assert events[::2] == ONE
    assert events[1::2] == sorted(events[1::2], key=int)
    assert slept == [0, 0.1]


def test_activities_are_within_each_other(tmp_path: Path, slept: list[float]) -> None:
    names = activities(
        tmp_path, enable_custom_tracing="true", nested_span_count="3", single_activity_frequency="2"
    )[::2]
    assert names == [
        *ONE,
        "CUSTOM_ACTIVITY0_START",
        "CUSTOM_SINGLE_ACTIVITY",
        "CUSTOM_ACTIVITY1_START",
        "CUSTOM_ACTIVITY2_START",
        "CUSTOM_SINGLE_ACTIVITY",
        "CUSTOM_ACTIVITY2_END",
        "CUSTOM_ACTIVITY1_END",
        "CUSTOM_ACTIVITY0_END",
    ]
    assert slept == [0, *[0.1] * 4]


def test_without_times_or_the_parameter_there_are_no_activities(tmp_path: Path, slept: list[float]) -> None:
    assert activities(tmp_path, timestamps=False, enable_custom_tracing="true") == []
    assert activities(tmp_path, enable_custom_tracing="false", nested_span_count="2") == []
    assert activities(tmp_path, nested_span_count="2") == []
    assert slept == [0] * 3


@pytest.mark.parametrize(
    ("key", "value"),
    [("enable_custom_tracing", "maybe"), ("nested_span_count", "-1"), ("single_activity_frequency", "0")],
)
def test_bad_parameters_of_activities_are_told(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"parameter '{key}' must be .*'{value}'"):
        load(tmp_path, CONFIG + parameter(key, value))


def test_the_trace_file_has_the_activities_of_tritons_own_model(tmp_path: Path) -> None:
    """The model `custom_identity_int32` of Triton's tests."""
    directory = tmp_path / "models" / "custom_identity_int32"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(
        """
        backend: "identity" max_batch_size: 1024
        input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
        output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
        instance_group [{ kind: KIND_CPU }]
        """
        + parameter("execute_delay_ms", "500")
        + parameter("enable_custom_tracing", "true")
    )
    file = tmp_path / "trace.json"
    flags = [f"--trace-config={each}" for each in (f"triton,file={file}", "level=TIMESTAMPS", "rate=1")]
    tensor = client.InferInput("INPUT0", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[4]], np.int32))
    with (
        start_server(tmp_path / "models", *flags) as running,
        client.InferenceServerClient(running.http) as opened,
    ):
        assert opened.infer("custom_identity_int32", [tensor]).as_numpy("OUTPUT0").tolist() == [[4]]
        (trace,) = await_traces(file, lambda traces: len(traces) == 1)
    names = [name for name, _ in trace.times]
    assert [name for name in names if name.startswith("CUSTOM_")] == ONE
    assert "REQUEST_END" in names


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [-1] }', "", "got 2 inputs and 1 outputs"),
        (
            '"OUTPUT0" data_type: TYPE_FP32',
            '"OUTPUT0" data_type: TYPE_INT8',
            "input 'INPUT0' .* must be alike",
        ),
        (
            '"OUTPUT0" data_type: TYPE_FP32 dims: [-1]',
            '"OUTPUT0" data_type: TYPE_FP32 dims: [2]',
            "must be alike",
        ),
    ],
)
def test_inputs_and_outputs_that_do_not_pair_are_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in CONFIG
    with pytest.raises(InvalidArgumentError, match=message):
        load(tmp_path, CONFIG.replace(old, new))
