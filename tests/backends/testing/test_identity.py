from pathlib import Path

import numpy as np
import pytest

from halimede.backends.base import BackendOptions
from halimede.backends.testing import identity
from halimede.core.datatypes import ALL, BYTES, Datatype
from halimede.core.errors import InvalidArgumentError, UnsupportedError
from tests.backends.helpers import Loaded, floats, load, request, source_of, wire

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


def test_custom_tracing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="parameter 'enable_custom_tracing' is not available"):
        load(tmp_path, CONFIG + parameter("enable_custom_tracing", "true"))


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
