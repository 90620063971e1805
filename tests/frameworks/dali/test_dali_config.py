from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvidia.dali", reason="needs DALI: pip install 'halimede[dali]'")

from google.protobuf.text_format import MessageToString
from nvidia.dali import fn, types

from halimede.backends.base import BackendOptions
from halimede.backends.dali.config import check
from halimede.backends.dali.definition import Definition
from halimede.config.parse import parse_text
from halimede.core.errors import InvalidArgumentError
from tests.backends.helpers import Loaded
from tests.frameworks.dali.dali_models import decoder, doubler, load, resizer, serialized, source_of

X = 'input { name: "X" data_type: TYPE_FP32 dims: [-1] }'
Y = 'output { name: "Y" data_type: TYPE_FP32 dims: [-1] }'


def undeclared() -> bytes:
    """A pipeline that says nothing of what it takes and gives."""
    return serialized(lambda: fn.external_source(name="X") * 2)


def named() -> bytes:
    """A pipeline with two outputs that have names."""

    def define() -> Any:
        x = fn.external_source(name="X", dtype=types.FLOAT, ndim=1)
        return fn.copy(x, name="A"), fn.copy(x, name="B")

    return serialized(define, output_dtype=[types.FLOAT] * 2, output_ndim=[1, 1])


def completed(model: Loaded) -> str:
    config = model.config
    kept = type(config)(max_batch_size=config.max_batch_size, input=config.input, output=config.output)
    return MessageToString(kept)


def text(config: str) -> str:
    return MessageToString(parse_text(config, "test"))


def test_a_configuration_is_completed_from_the_pipeline(tmp_path: Path) -> None:
    model = load(tmp_path, serialized(lambda: fn.decoders.image(
        fn.external_source(name="IMAGE", dtype=types.UINT8, ndim=1), output_type=types.RGB, name="PIXELS",
    ), output_dtype=types.UINT8, output_ndim=3))  # fmt: skip
    assert completed(model) == text("""
        max_batch_size: 8
        input { name: "IMAGE" data_type: TYPE_UINT8 dims: [-1] allow_ragged_batch: true }
        output { name: "PIXELS" data_type: TYPE_UINT8 dims: [-1, -1, -1] }
    """)
    assert model.config.HasField("dynamic_batching")


def test_what_a_partial_configuration_says_is_kept(tmp_path: Path) -> None:
    model = load(
        tmp_path,
        resizer(),
        'max_batch_size: 3 input { name: "IMAGE" } output { name: "OUT" dims: [3, 4, 3] }',
    )
    assert completed(model) == text("""
        max_batch_size: 3
        input { name: "IMAGE" data_type: TYPE_UINT8 dims: [-1] allow_ragged_batch: true }
        output { name: "OUT" data_type: TYPE_UINT8 dims: [3, 4, 3] }
    """)


def test_what_the_pipeline_leaves_open_the_configuration_says(tmp_path: Path) -> None:
    model = load(tmp_path, undeclared(), f"{X} {Y} max_batch_size: 2")
    assert completed(model) == text(
        'max_batch_size: 2 input { name: "X" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }' + Y
    )


def test_dimensions_may_come_from_the_layout(tmp_path: Path) -> None:
    pipeline = serialized(
        lambda: fn.flip(fn.external_source(name="X", dtype=types.UINT8, layout="HWC")),
        output_dtype=types.UINT8,
        output_ndim=3,
    )
    assert list(load(tmp_path, pipeline).config.input[0].dims) == [-1, -1, -1]


def test_outputs_take_their_names_by_order(tmp_path: Path) -> None:
    model = load(tmp_path, named(), 'output { name: "FIRST" }')
    assert [entry.name for entry in model.config.output] == ["FIRST", "B"]


def test_scalars_are_one_element(tmp_path: Path) -> None:
    def define() -> Any:
        return fn.external_source(name="X", dtype=types.FLOAT, ndim=0) + 1

    pipeline = serialized(define, output_dtype=types.FLOAT, output_ndim=0)
    for config in ("", 'input { name: "X" dims: [1] }'):
        model = load(tmp_path, pipeline, config)
        entry = model.config.input[0]
        assert (list(entry.dims), entry.HasField("reshape"), list(entry.reshape.shape)) == ([1], True, [])


CONTRADICTIONS = {
    'input { name: "Z" data_type: TYPE_FP32 dims: [-1] }': (
        "unexpected inference input 'Z', the pipeline's external sources are: X"
    ),
    'input { name: "X" data_type: TYPE_INT32 dims: [-1] }': (
        "configuration expects datatype TYPE_INT32 for input 'X', pipeline provides TYPE_FP32"
    ),
    'input { name: "X" data_type: TYPE_FP32 dims: [-1, 3] }': (
        "input 'X' has 2 dimensions (dims [-1, 3]) in the configuration, but 1 in the pipeline"
    ),
    'input { name: "X" optional: true }': "input 'X' is optional, but a pipeline needs all of its inputs",
    'output { name: "A" } output { name: "C" } output { name: "D" }': (
        "the configuration lists 3 outputs, but the pipeline has 2"
    ),
    'output { name: "B" } output { name: "A" }': (
        "output 'B' is listed as number 1, but the pipeline returns it as number 2; outputs go by their order"
    ),
    'output { name: "A" data_type: TYPE_FP32 dims: [2, 2] }': (
        "output 'A' has 2 dimensions (dims [2, 2]) in the configuration, but 1 in the pipeline"
    ),
    'batch_input { kind: BATCH_ITEM_SHAPE target_name: "S" data_type: TYPE_INT32 source_input: "X" }': (
        "remove batch_input and batch_output"
    ),
    'parameters { key: "split_along_outer_axis" value { string_value: "A:C" } }': (
        "parameter 'split_along_outer_axis' names 'C', the outputs are: A, B"
    ),
    'parameters { key: "split_outer_dim" value { string_value: "A" } }': (
        "the parameter 'split_outer_dim' is called 'split_along_outer_axis' now; rename it"
    ),
    'parameters { key: "num_threads" value { string_value: "0" } }': (
        "parameter 'num_threads' must be an integer of at least 1, got '0'"
    ),
    "model_transaction_policy { decoupled: true }": "gives each request one response",
}


@pytest.mark.parametrize("config", CONTRADICTIONS)
def test_a_contradiction_between_configuration_and_pipeline_is_named(tmp_path: Path, config: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, named(), config)
    assert CONTRADICTIONS[config] in caught.value.message


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "neither configuration nor pipeline say the data_type of input 'X'"),
        ('input { name: "X" data_type: TYPE_FP32 }', "neither configuration nor pipeline say the dims of input 'X'"),
        (X, "neither configuration nor pipeline say the data_type of output"),
        ('input { name: "X" data_type: TYPE_STRING dims: [1] }', "is TYPE_STRING, which DALI does not have"),
    ],
)  # fmt: skip
def test_what_neither_says_is_an_error(tmp_path: Path, config: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, undeclared(), config)
    assert said in caught.value.message


def test_without_completion_all_inputs_must_be_listed() -> None:
    config = parse_text(f"max_batch_size: 1 {Y}", "test")
    config.name = "m"
    with pytest.raises(InvalidArgumentError, match="needs input 'X', which the configuration does not list"):
        check(config, Definition.parse(doubler()))


def test_a_pipeline_without_inputs_is_refused(tmp_path: Path) -> None:
    pipeline = serialized(lambda: fn.random.uniform(range=[0, 1]), output_dtype=types.FLOAT, output_ndim=0)
    with pytest.raises(InvalidArgumentError, match="its pipeline has no input"):
        load(tmp_path, pipeline)


@pytest.mark.parametrize(("parameter", "in_pipeline", "threads"), [("3", 1, 3), ("", 1, 1), ("", 4, 2)])
def test_threads_are_the_parameter_or_the_pipelines_within_those_of_the_server(
    tmp_path: Path, parameter: str, in_pipeline: int, threads: int
) -> None:
    pipeline = serialized(lambda: fn.external_source(name="X") * 2, num_threads=in_pipeline)
    config = (
        f'parameters {{ key: "num_threads" value {{ string_value: "{parameter}" }} }}' if parameter else ""
    )
    model = load(tmp_path, pipeline, X + Y + config, BackendOptions(cpu_threads=2))
    running: Any = model.instance
    assert running._pipeline.num_threads == threads  # noqa: SLF001 - DALI's pipeline, whose threads nothing else shows


def test_the_default_batch_size_is_not_used_where_the_pipeline_has_one(tmp_path: Path) -> None:
    options = BackendOptions({"default-max-batch-size": "64"})
    assert Loaded(source_of(tmp_path, decoder()), options).config.max_batch_size == 8
