import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

openvino = pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'halimede[openvino]'")

from halimede.backends.base import BackendOptions, InstanceSpec  # noqa: E402 - once it is known to be there
from halimede.backends.openvino.backend import OpenVinoInstance, OpenVinoModel  # noqa: E402
from halimede.backends.openvino.errors import openvino_error  # noqa: E402
from halimede.core.datatypes import ALL, BF16, BYTES, FP32, Datatype  # noqa: E402
from halimede.core.errors import (  # noqa: E402
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
)
from halimede.core.tensors import Tensor  # noqa: E402
from tests.backends.helpers import (  # noqa: E402
    Loaded,
    add_at_once,
    floats,
    gather_one_bad_row,
    load,
    request,
    source_of,
    wire,
)
from tests.backends.memory import memory_over_loads  # noqa: E402
from tests.backends.onnx.test_backend import ONNX_TYPES  # noqa: E402
from tests.support import onnx_models  # noqa: E402
from tests.support.foreign_files import each_foreign_file  # noqa: E402

OPENVINO = 'backend: "openvino"\n'
NUMBERS = [datatype for datatype in ALL if datatype is not BYTES]
ONNX_FILE = OPENVINO + 'default_model_filename: "model.onnx"\n'


FIRST = 'input { name: "INPUT0" data_type: TYPE_FP32 dims: [2] } '


def load_onnx(
    directory: Path, onnx_model: onnx.ModelProto, text: str = "", options: BackendOptions | None = None
) -> Loaded:
    return load(directory, ONNX_FILE + text, onnx_model, options)


def write_ir(directory: Path, model: Any, text: str = "") -> Any:
    """The source of an IR model; `model` is ONNX, or an `openvino.Model`."""
    source = source_of(directory, OPENVINO + text)
    if isinstance(model, onnx.ModelProto):
        path = directory / "model.onnx"
        onnx.save(model, str(path))
        model = openvino.Core().read_model(str(path))
    openvino.save_model(model, str(source.version_directory / "model.xml"), compress_to_fp16=False)
    return source


def load_ir(directory: Path, model: Any, text: str = "") -> Loaded:
    return Loaded(write_ir(directory, model, text))


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def fixed_identity(rows: int) -> onnx.ModelProto:
    """INPUT0 → OUTPUT0, FP32[rows, 2]."""
    return onnx_models.identity(dims=(rows, 2), batching=False)


def test_ir_model_needs_no_configuration(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    assert (tmp_path / "m" / "1" / "model.bin").is_file()
    outputs = model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))
    assert list(outputs) == ["OUTPUT0", "OUTPUT1"]
    assert outputs["OUTPUT0"].tolist() == [[11, 22]]
    assert outputs["OUTPUT1"].tolist() == [[-9, -18]]
    config = model.config
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (4, True)
    assert [(entry.name, list(entry.dims)) for entry in config.input] == [("INPUT0", [2]), ("INPUT1", [2])]


def test_onnx_file_runs_through_openvino_if_the_configuration_says_so(tmp_path: Path) -> None:
    model = load_onnx(tmp_path, onnx_models.add_sub(dims=(2,)))
    assert isinstance(model.instance, OpenVinoInstance)
    assert model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))["OUTPUT1"].tolist() == [[-9, -18]]


def test_a_row_that_cannot_be_computed_fails_alone(tmp_path: Path) -> None:
    model = load_onnx(tmp_path, onnx_models.gather_by_index())
    answers, error = gather_one_bad_row(model, "INPUT0", "INDEX", "OUTPUT0")
    assert answers == [[[11]], [[13]]]
    assert "GatherElements" in error


def test_a_batch_runs_once_and_each_request_gets_its_rows(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.identity(dims=(2,)))
    responses = model.run(
        request({"INPUT0": floats([1, 2])}),
        request({"INPUT0": floats([3, 4], [5, 6])}),
        request({"INPUT0": floats([7, 8])}),
    )
    assert [response.outputs["OUTPUT0"].array.tolist() for response in responses] == [
        [[1, 2]],
        [[3, 4], [5, 6]],
        [[7, 8]],
    ]


def test_only_wanted_outputs_are_answered(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    inputs = {"INPUT0": floats([1, 2]), "INPUT1": floats([10, 20])}
    assert list(model(("OUTPUT1",), **inputs)) == ["OUTPUT1"]
    both, one = model.run(request(dict(inputs)), request(dict(inputs), ("OUTPUT0",)))
    assert (list(both.outputs), list(one.outputs)) == (["OUTPUT0", "OUTPUT1"], ["OUTPUT0"])


@pytest.mark.parametrize("datatype", NUMBERS, ids=lambda datatype: datatype.name)
def test_every_datatype_passes_unchanged_single_and_batched(tmp_path: Path, datatype: Datatype) -> None:
    model = load_onnx(tmp_path, onnx_models.identity(ONNX_TYPES[datatype.name], (3,)))
    assert model.config.input[0].data_type == datatype.number
    array = np.array([[0, 1, 100]]).astype(datatype.numpy)
    first = wire(array, datatype)
    (response,) = model.run(request({"INPUT0": first}))
    assert response.outputs["OUTPUT0"].datatype is datatype
    assert response.outputs["OUTPUT0"].shape == (1, 3)
    assert bytes(response.outputs["OUTPUT0"].data) == bytes(first.data)
    responses = model.run(request({"INPUT0": first}), request({"INPUT0": wire(array, datatype)}))
    assert [bytes(each.outputs["OUTPUT0"].data) for each in responses] == [bytes(first.data)] * 2


def test_bf16_values_are_bf16_to_the_model(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Cast", ["INPUT0"], ["OUTPUT0"], to=onnx_models.FLOAT)]
    cast = onnx_models.build(
        nodes,
        {"INPUT0": (onnx_models.BFLOAT16, ["batch", 2])},
        {"OUTPUT0": (onnx_models.FLOAT, ["batch", 2])},
    )
    model = load_onnx(tmp_path, cast)
    assert model(INPUT0=wire(np.array([[0x3F80, 0xC000]], "<u2"), BF16))["OUTPUT0"].tolist() == [[1.0, -2.0]]


def test_strings_are_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the model's input 'INPUT0' holds strings"):
        load_onnx(tmp_path, onnx_models.string_identity((2,)))


def test_free_sizes_are_minus_one_and_empty_tensors_pass(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.identity(dims=["n"]))
    assert list(model.config.input[0].dims) == [-1]
    assert model(INPUT0=np.zeros((1, 0), np.float32))["OUTPUT0"].shape == (1, 0)
    assert model(INPUT0=floats([1, 2, 3]))["OUTPUT0"].tolist() == [[1, 2, 3]]


def test_scalars_are_one_element_to_clients(tmp_path: Path) -> None:
    rows = load_ir(tmp_path / "rows", onnx_models.identity(dims=()))
    assert rows(INPUT0=floats([7], [8]))["OUTPUT0"].tolist() == [[7], [8]]
    alone = load_ir(tmp_path / "alone", onnx_models.identity(dims=(), batching=False))
    assert alone(INPUT0=np.array([7], np.float32))["OUTPUT0"].tolist() == [7]


def test_big_inputs_are_read_in_place_and_never_written(tmp_path: Path) -> None:
    relu = onnx_models.build(
        [onnx.helper.make_node("Relu", ["X"], ["A"]), onnx.helper.make_node("Neg", ["A"], ["Y"])],
        {"X": (onnx_models.FLOAT, ["batch", 20_000])},
        {"Y": (onnx_models.FLOAT, ["batch", 20_000])},
    )
    model = load_ir(tmp_path, relu)
    assert isinstance(model.instance, OpenVinoInstance)
    values = np.linspace(-1, 1, 20_000, dtype=np.float32).reshape(1, -1)
    sent = wire(values)
    assert np.array_equal(model(X=sent)["Y"], -np.maximum(values, 0))
    held = model.instance._request.get_input_tensor(0).data  # noqa: SLF001 - OpenVINO's own memory, which no answer shows
    assert np.shares_memory(held, np.frombuffer(sent.data, np.uint8))
    assert bytes(sent.data) == values.tobytes()


def test_unaligned_views_are_made_fit_for_kernels(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    body = b"x" + floats([1, 2]).tobytes()
    tensor = Tensor(FP32, (1, 2), memoryview(body)[1:])
    assert model(INPUT0=tensor, INPUT1=floats([10, 20]))["OUTPUT0"].tolist() == [[11, 22]]


def test_outputs_outlive_the_next_run_and_the_model(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    first = model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))["OUTPUT0"]
    second = model(INPUT0=floats([5, 5]), INPUT1=floats([5, 5]))["OUTPUT0"]
    model.close()
    del model
    gc.collect()
    assert (first.tolist(), second.tolist()) == ([[11, 22]], [[10, 10]])


def test_reshape_shows_clients_and_model_different_shapes(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [1, 4] reshape { shape: [2, 2] } }
    """
    model = load_ir(tmp_path, onnx_models.identity(dims=(2, 2)), text)
    assert model(INPUT0=floats([1, 2, 3, 4]))["OUTPUT0"].tolist() == [[[1, 2, 3, 4]]]


def test_ragged_batch_is_flat_with_offsets(tmp_path: Path) -> None:
    text = """
        max_batch_size: 8
        input { name: "RAGGED" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [1] }
        batch_input {
            kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO
            target_name: "OFFSETS" data_type: TYPE_FP32 source_input: "RAGGED"
        }
    """
    model = load_onnx(tmp_path, onnx_models.ragged_sum(), text)
    responses = model.run(request({"RAGGED": floats([1, 2, 3])}), request({"RAGGED": floats([10])}))
    assert [response.outputs["OUTPUT"].array.tolist() for response in responses] == [[[6]], [[10]]]


def test_model_of_a_fixed_first_dimension_does_not_batch_by_itself(tmp_path: Path) -> None:
    model = load_ir(tmp_path, fixed_identity(1))
    assert (model.config.max_batch_size, list(model.config.input[0].dims)) == (0, [1, 2])
    assert model(INPUT0=floats([1, 2]))["OUTPUT0"].tolist() == [[1, 2]]


def test_max_batch_size_frees_a_fixed_first_dimension(tmp_path: Path) -> None:
    model = load_ir(tmp_path, fixed_identity(1), "max_batch_size: 8")
    assert list(model.config.input[0].dims) == [2]
    assert model(INPUT0=floats([1, 2], [3, 4]))["OUTPUT0"].tolist() == [[1, 2], [3, 4]]


def test_layout_that_names_the_batch_makes_the_model_batch(tmp_path: Path) -> None:
    for layout, batches in (("NC", True), ("CN", False)):
        path = tmp_path / f"{layout}.onnx"
        onnx.save(fixed_identity(1), str(path))
        model = openvino.Core().read_model(str(path))
        for port in (*model.inputs, *model.outputs):
            openvino.layout_helpers.set_layout(port, openvino.Layout(layout))
        loaded = load_ir(tmp_path / layout, model)
        assert loaded.config.max_batch_size == (4 if batches else 0)
        assert list(loaded.config.input[0].dims) == ([2] if batches else [1, 2])


def test_model_whose_outputs_cannot_follow_the_batch_is_refused(tmp_path: Path) -> None:
    flat = onnx.numpy_helper.from_array(np.array([1, 2], np.int64), "S")
    stuck = onnx_models.build(
        [onnx.helper.make_node("Reshape", ["INPUT0", "S"], ["OUTPUT0"])],
        {"INPUT0": (onnx_models.FLOAT, [1, 2])},
        {"OUTPUT0": (onnx_models.FLOAT, [1, 2])},
        [flat],
    )
    with pytest.raises(InternalError, match="does not support batching while non-zero max_batch_size"):
        load_onnx(tmp_path, stuck, "max_batch_size: 8")


def made_for(rows: int) -> onnx.ModelProto:
    """X → Y, FP32[rows, 2] → FP32[rows, 2], adding 1, 2, … to the rows: it can take no other number of them."""
    offsets = np.arange(1, rows + 1, dtype=np.float32).reshape(rows, 1)
    shape = np.array([rows, 2], np.int64)
    return onnx_models.build(
        [
            onnx.helper.make_node("Reshape", ["X", "S"], ["XS"]),
            onnx.helper.make_node("Add", ["XS", "C"], ["Y"]),
        ],
        {"X": (onnx_models.FLOAT, [rows, 2])},
        {"Y": (onnx_models.FLOAT, [rows, 2])},
        [onnx.numpy_helper.from_array(shape, "S"), onnx.numpy_helper.from_array(offsets, "C")],
    )


LISTED = """
    input { name: "X" data_type: TYPE_FP32 dims: [2] }
    output { name: "Y" data_type: TYPE_FP32 dims: [2] }
"""


@pytest.mark.parametrize("listed", ["", LISTED])
def test_model_made_for_batches_of_max_batch_size_serves_smaller_ones(tmp_path: Path, listed: str) -> None:
    model = load_ir(tmp_path, made_for(4), "max_batch_size: 4\n" + listed)
    assert list(model.config.input[0].dims) == [2]
    rows = floats([10, 20], [30, 40], [50, 60], [70, 80])
    added = [[11, 21], [32, 42], [53, 63], [74, 84]]
    assert model(X=rows)["Y"].tolist() == added
    assert model(X=rows[:1])["Y"].tolist() == added[:1]
    first, second = model.run(request({"X": rows[:2]}), request({"X": rows[2:3]}))
    assert first.outputs["Y"].array.tolist() == added[:2]
    assert second.outputs["Y"].array.tolist() == added[2:3]
    assert model(X=rows[:1])["Y"].tolist() == added[:1]


@pytest.mark.parametrize("largest", [2, 8])
def test_model_made_for_batches_of_another_size_is_refused(tmp_path: Path, largest: int) -> None:
    with pytest.raises(HalimedeError, match=r"does not let its inputs be reshaped|does not support batching"):
        load_ir(tmp_path, made_for(4), f"max_batch_size: {largest}")


def test_model_that_need_not_stay_fixed_at_max_batch_size_is_freed(tmp_path: Path) -> None:
    model = load_ir(tmp_path, fixed_identity(4), "max_batch_size: 4")
    assert isinstance(model.instance, OpenVinoInstance)
    assert model.instance._rows == 0  # noqa: SLF001 - that it was freed from its batch size shows in no answer
    assert model(INPUT0=floats([1, 2]))["OUTPUT0"].tolist() == [[1, 2]]


def test_fixed_batch_refuses_other_sizes_unless_they_are_padded(tmp_path: Path) -> None:
    fixed = "max_batch_size: 4\n" + parameter("SKIP_OV_DYNAMIC_BATCHSIZE", "YES")
    strict = load_ir(tmp_path / "strict", onnx_models.add_sub(dims=(2,)), fixed)
    rows = floats([1, 2], [3, 4], [5, 6], [7, 8])
    assert strict(INPUT0=rows, INPUT1=rows)["OUTPUT0"].tolist() == (2 * rows).tolist()
    with pytest.raises(
        InternalError, match=r"expected requests with batch size '4', got '1'.*ENABLE_BATCH_PADD"
    ):
        strict(INPUT0=rows[:1], INPUT1=rows[:1])
    padded = load_ir(
        tmp_path / "padded", onnx_models.add_sub(dims=(2,)), fixed + parameter("ENABLE_BATCH_PADDING", "yes")
    )
    responses = padded.run(
        request({"INPUT0": rows[:2], "INPUT1": rows[:2]}), request({"INPUT0": rows[2:3], "INPUT1": rows[2:3]})
    )
    assert [response.outputs["OUTPUT0"].array.tolist() for response in responses] == [
        (2 * rows[:2]).tolist(),
        (2 * rows[2:3]).tolist(),
    ]


def test_reshape_io_layers_gives_the_model_the_shapes_of_the_configuration(tmp_path: Path) -> None:
    text = """
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1, 3, -1] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1, 3, -1] }
    """
    image = onnx_models.identity(dims=(1, 3, 4), batching=False)
    with pytest.raises(InvalidArgumentError, match=r"tensor 'INPUT0': the model expects"):
        load_ir(tmp_path / "without", image, text)
    model = load_ir(tmp_path / "with", image, text + parameter("RESHAPE_IO_LAYERS", "YES"))
    assert model(INPUT0=np.ones((2, 3, 5), np.float32))["OUTPUT0"].shape == (2, 3, 5)
    completed = load_ir(
        tmp_path / "completed",
        image,
        'max_batch_size: 2 input { name: "INPUT0" data_type: TYPE_FP32 dims: [3, 7] }'
        + parameter("RESHAPE_IO_LAYERS", "YES"),
    )
    assert list(completed.config.output[0].dims) == [3, 7]


def test_shapes_that_the_model_cannot_take_are_named(tmp_path: Path) -> None:
    text = 'input { name: "X" data_type: TYPE_FP32 dims: [1, 5] }' + parameter("RESHAPE_IO_LAYERS", "YES")
    matrix = onnx_models.build(
        [onnx.helper.make_node("MatMul", ["X", "W"], ["Y"])],
        {"X": (onnx_models.FLOAT, [1, 4])},
        {"Y": (onnx_models.FLOAT, [1, 2])},
        [onnx.numpy_helper.from_array(np.ones((4, 2), np.float32), "W")],
    )
    with pytest.raises(
        InvalidArgumentError, match=r"does not let its inputs be reshaped \('X' to \[1, 5\]\)"
    ) as caught:
        load_onnx(tmp_path, matrix, text)
    assert "Exception from" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'input { name: "A" data_type: TYPE_FP32 dims: [2] }',
            "configuration expects 1 inputs, model provides 2",
        ),
        (
            FIRST + 'input { name: "B" data_type: TYPE_FP32 dims: [2] }',
            "unexpected inference input 'B', allowed inputs are: INPUT0, INPUT1",
        ),
        (
            FIRST + 'input { name: "INPUT1" data_type: TYPE_INT32 dims: [2] }',
            "configuration expects datatype TYPE_INT32 for input 'INPUT1', model provides TYPE_FP32",
        ),
        (
            FIRST + 'input { name: "INPUT1" data_type: TYPE_FP32 dims: [3] }',
            r"tensor 'INPUT1': the model expects 2 dimensions \(shape \[-1,2\]\)",
        ),
    ],
)
def test_configuration_that_contradicts_the_model_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        load_ir(tmp_path, onnx_models.add_sub(dims=(2,)), "max_batch_size: 4\n" + text)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "PERFORMANCE_HINT",
            "FAST",
            r"'PERFORMANCE_HINT' must be one of 'LATENCY', 'THROUGHPUT', got 'FAST'",
        ),
        (
            "INFERENCE_NUM_THREADS",
            "many",
            "'INFERENCE_NUM_THREADS' must be an integer of at least 0, got 'many'",
        ),
        ("NUM_STREAMS", "0", r"'NUM_STREAMS' \(AUTO, NUMA or a number\) must be an integer of at least 1"),
        ("HINT_BF16", "1", "'HINT_BF16' must be YES or NO, got '1'"),
        ("SKIP_OV_DYNAMIC_BATCHSIZE", "YES", "fixes the batch size at max_batch_size, which"),
        (
            "CPU_EXTENSION_PATH",
            "ops.so",
            r"cannot load the extension .*/m/ops\.so that the parameter 'CPU_EXT",
        ),
        ("CPU_THREADS_NUM", "2", r"'CPU_THREADS_NUM' is of an older .* successor is INFERENCE_NUM_THREADS"),
    ],
)
def test_wrong_parameter_is_refused_by_name(tmp_path: Path, key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        load_onnx(tmp_path, onnx_models.identity(dims=(2,)), parameter(key, value))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("TARGET_DEVICE", "NPU", r"no device 'NPU' here \(it has CPU.*change the parameter 'TARGET_DEVICE'"),
        ("COMPILATION_NUM_THREADS", "1", "remove the parameter 'COMPILATION_NUM_THREADS'"),
    ],
)
def test_what_this_openvino_lacks_is_named(tmp_path: Path, key: str, value: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        load_onnx(tmp_path, onnx_models.identity(dims=(2,)), parameter(key, value))


def test_instances_of_kind_gpu_are_refused(tmp_path: Path) -> None:
    model = load_onnx(tmp_path, onnx_models.identity(dims=(2,)))
    with pytest.raises(
        InvalidArgumentError, match=r"no instances of KIND_GPU; say KIND_CPU.*'TARGET_DEVICE'"
    ):
        model.backend.create_instance(InstanceSpec("m_0", 0, "KIND_GPU"))


def compiled_with(model: Loaded, name: str) -> object:
    assert isinstance(model.backend, OpenVinoModel)
    return model.backend._compiled.get_property(name)  # noqa: SLF001 - OpenVINO's compiled model, whose properties nothing else shows


def test_threads_and_streams_are_those_of_server_and_instances(tmp_path: Path) -> None:
    add_sub = onnx_models.add_sub(dims=(2,))
    alone = load_onnx(tmp_path / "0", add_sub, options=BackendOptions(cpu_threads=1))
    assert compiled_with(alone, "NUM_STREAMS") == 0
    two = BackendOptions(cpu_threads=2)
    one = load_onnx(tmp_path / "a", add_sub, options=two)
    assert (compiled_with(one, "NUM_STREAMS"), compiled_with(one, "INFERENCE_NUM_THREADS")) == (1, 2)
    several = load_onnx(tmp_path / "b", add_sub, "instance_group { count: 5 kind: KIND_CPU }", two)
    assert (compiled_with(several, "NUM_STREAMS"), compiled_with(several, "INFERENCE_NUM_THREADS")) == (2, 2)
    own = load_onnx(
        tmp_path / "c", add_sub, parameter("INFERENCE_NUM_THREADS", "1") + parameter("NUM_STREAMS", "1"), two
    )
    assert (compiled_with(own, "NUM_STREAMS"), compiled_with(own, "INFERENCE_NUM_THREADS")) == (1, 1)
    hinted = load_onnx(tmp_path / "d", add_sub, parameter("PERFORMANCE_HINT", "LATENCY"), two)
    assert compiled_with(hinted, "PERFORMANCE_HINT") == "LATENCY"


def test_precision_is_that_of_the_model_unless_bf16_is_asked_for(tmp_path: Path) -> None:
    model = load_onnx(tmp_path, onnx_models.add_sub(dims=(2,)))
    assert compiled_with(model, "INFERENCE_PRECISION_HINT") == openvino.Type.f32


@pytest.mark.parametrize("threads", [1, 2])
def test_instances_share_one_compiled_model_and_run_at_once(tmp_path: Path, threads: int) -> None:
    model = load_onnx(tmp_path, onnx_models.add_sub(dims=(2,)), options=BackendOptions(cpu_threads=threads))
    instances = [model.backend.create_instance(InstanceSpec(f"m_{i}", i)) for i in range(4)]
    add_at_once(model, instances, "INPUT0", "INPUT1", "OUTPUT0")


def test_state_of_a_model_does_not_pass_from_request_to_request(tmp_path: Path) -> None:
    ops = openvino.opset13
    x = ops.parameter([1, 2], np.float32, name="X")
    x.output(0).set_names({"X"})
    before = ops.read_value(ops.constant(np.zeros((1, 2), np.float32)), "total")
    total = ops.add(before, x)
    total.output(0).set_names({"Y"})
    counter = openvino.Model([ops.result(total)], [ops.assign(total, "total")], [x], "counter")
    model = load_ir(tmp_path, counter)
    assert [model(X=floats([1, 2]))["Y"].tolist() for _ in range(3)] == [[[1, 2]]] * 3


def test_missing_file_is_named_with_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r'there is no file .*/m/1/model\.xml; .*"model\.onnx"'):
        load(tmp_path, OPENVINO, onnx_models.identity(dims=(2,)))


@pytest.mark.parametrize("damage", ["no model", "truncated", "without weights", "truncated weights"])
def test_broken_file_is_openvinos_error(
    tmp_path: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = onnx.numpy_helper.from_array(np.arange(4096, dtype=np.float32), "W")
    adder = onnx_models.build(
        [onnx.helper.make_node("Add", ["X", "W"], ["Y"])],
        {"X": (onnx_models.FLOAT, ["batch", 4096])},
        {"Y": (onnx_models.FLOAT, ["batch", 4096])},
        [weights],
    )
    source = write_ir(tmp_path, adder)
    xml, binary = (source.version_directory / name for name in ("model.xml", "model.bin"))
    if damage == "no model":
        xml.write_bytes(b"not a model")
    elif damage == "truncated":
        xml.write_bytes(xml.read_bytes()[:200])
    elif damage == "without weights":
        binary.unlink()
    else:
        binary.write_bytes(binary.read_bytes()[:1000])
    with pytest.raises(HalimedeError, match=r"^openvino error: \S+") as caught:
        Loaded(source)
    assert "Exception from" not in caught.value.message
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("version", [7, 99])
def test_ir_of_another_version_is_said_with_those_that_are_read(tmp_path: Path, version: int) -> None:
    source = write_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    xml = source.version_directory / "model.xml"
    text = xml.read_text()
    assert 'version="11"' in text
    xml.write_text(text.replace('version="11"', f'version="{version}"', 1))
    with pytest.raises(
        InvalidArgumentError,
        match=rf"model\.xml is IR of version {version}, and OpenVINO 20\S+ reads versions 10 and 11",
    ):
        Loaded(source)


def test_operators_of_an_unknown_opset_are_named(tmp_path: Path) -> None:
    source = write_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    xml = source.version_directory / "model.xml"
    xml.write_text(xml.read_text().replace('version="opset1"', 'version="opset99"'))
    with pytest.raises(InternalError, match=r"openvino error: Cannot create .* unsupported opset: opset99"):
        Loaded(source)


@pytest.mark.parametrize("content", ["nothing", "text", "truncated"])
def test_file_that_is_no_onnx_model_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    whole = onnx_models.add_sub(dims=(2,)).SerializeToString()
    source = source_of(tmp_path, ONNX_FILE, onnx_models.add_sub(dims=(2,)))
    bad = {"nothing": b"", "text": b"not a model", "truncated": whole[: len(whole) // 2]}[content]
    (source.version_directory / "model.onnx").write_bytes(bad)
    with pytest.raises(HalimedeError, match=r"openvino error: .*/m/1/model\.onnx"):
        Loaded(source)


def test_decoupled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="gives each request one response"):
        load_onnx(tmp_path, onnx_models.identity(dims=(2,)), "model_transaction_policy { decoupled: true }")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            RuntimeError(
                "Exception from src/a.cpp:1:\nCheck 'x < y' failed at src/b.cpp:2:\nIncompatible shapes\n"
            ),
            InternalError,
            "openvino error: Incompatible shapes",
        ),
        (
            RuntimeError("Exception from a.cpp:1:\nstd::bad_alloc\n"),
            OutOfMemoryError,
            "openvino error: std::bad_alloc",
        ),
        (MemoryError(), OutOfMemoryError, "openvino error: MemoryError"),
    ],
)
def test_error_text_is_without_places_in_sources(error: Exception, kind: type, message: str) -> None:
    found = openvino_error(error)
    assert (type(found), found.message) == (kind, message)


@pytest.mark.parametrize("threads", [1, 2])
def test_run_that_fails_is_an_error_and_the_next_one_runs(tmp_path: Path, threads: int) -> None:
    adder = onnx_models.build(
        [onnx.helper.make_node("Add", ["A", "B"], ["Y"])],
        {"A": (onnx_models.FLOAT, ["batch", "n"]), "B": (onnx_models.FLOAT, ["batch", "m"])},
        {"Y": (onnx_models.FLOAT, ["batch", "k"])},
    )
    model = load_onnx(tmp_path, adder, options=BackendOptions(cpu_threads=threads))
    with pytest.raises(
        InternalError, match=r"openvino error: .*Eltwise shape infer input shapes dim index: 1"
    ):
        model(A=floats([1, 2]), B=floats([1, 2, 3]))
    assert model(A=floats([1, 2]), B=floats([1, 2]))["Y"].tolist() == [[2, 4]]


def test_closing_gives_the_compiled_model_back(tmp_path: Path) -> None:
    model = load_onnx(tmp_path, onnx_models.identity(dims=(2,)))
    assert isinstance(model.backend, OpenVinoModel)
    compiled = weakref.ref(model.backend._compiled)  # noqa: SLF001 - OpenVINO's compiled model, whose properties nothing else shows
    model.close()
    gc.collect()
    assert compiled() is None


def test_model_files_are_not_held_once_they_are_read(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((512, 512), np.float32), "W")
    matrix = onnx_models.build(
        [onnx.helper.make_node("MatMul", ["X", "W"], ["Y"])],
        {"X": (onnx_models.FLOAT, ["batch", 512])},
        {"Y": (onnx_models.FLOAT, ["batch", 512])},
        [weights],
    )
    model = load_ir(tmp_path, matrix)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    with (tmp_path / "m" / "1" / "model.bin").open("r+b") as file:
        file.truncate(0)
    assert model(X=np.ones((1, 512), np.float32))["Y"][0, :2].tolist() == [512, 512]


def load_matrix(directory: str, width: str) -> Callable[[], Loaded]:
    """What loads a model whose weights are a matrix of that width, and runs it."""
    size = int(width)
    weights = onnx.numpy_helper.from_array(np.ones((size, size), np.float32), "W")
    source = write_ir(
        Path(directory),
        onnx_models.build(
            [onnx.helper.make_node("MatMul", ["INPUT0", "W"], ["OUTPUT0"])],
            {"INPUT0": (onnx_models.FLOAT, ["batch", size])},
            {"OUTPUT0": (onnx_models.FLOAT, ["batch", size])},
            [weights],
        ),
    )

    def load_and_run() -> Loaded:
        loaded = Loaded(source)
        loaded(INPUT0=np.ones((4, size), np.float32))
        return loaded

    return load_and_run


@pytest.mark.parametrize(("width", "cycles"), [(3072, 8), (1024, 100)], ids=["large", "often"])
def test_memory_is_flat_over_loads(tmp_path: Path, width: int, cycles: int) -> None:
    memory = memory_over_loads(load_matrix, tmp_path, width, loads=cycles)
    # the weights are there as read and as kernels want them, and 10 to 14 MiB of programs; gone afterwards
    size = width * width * 4 / 2**20
    assert memory.grown < 8, memory
    assert 0.8 * size < memory.held < 2.5 * size + 24, memory


@each_foreign_file
def test_an_unreadable_file_is_told_by_what_it_looks_like(tmp_path: Path, content: bytes, text: str) -> None:
    source = write_ir(tmp_path, onnx_models.identity(dims=(2,)))
    (source.version_directory / "model.xml").write_bytes(content)
    with pytest.raises(HalimedeError, match=rf"^openvino error: .* \({text}[^)]*\)$"):
        Loaded(source)
