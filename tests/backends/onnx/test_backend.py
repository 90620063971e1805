import gc
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from halimede.backends.base import BackendOptions, InstanceSpec
from halimede.backends.batch import Batch
from halimede.backends.onnx.backend import OnnxInstance, OnnxModel, onnx_error
from halimede.core.datatypes import ALL, BF16, BY_NAME, BYTES, FP32, Datatype
from halimede.core.errors import InternalError, InvalidArgumentError, NotFoundError
from halimede.core.tensors import Array, Tensor
from tests.backends.helpers import (
    Loaded,
    add_at_once,
    floats,
    gather_one_bad_row,
    load,
    request,
    source_of,
    strings,
    wire,
)
from tests.backends.memory import memory_over_loads
from tests.support import onnx_models
from tests.support.foreign_files import FOREIGN, ZIP

ONNX_TYPES = {
    "BOOL": onnx_models.BOOL,
    "UINT8": onnx_models.UINT8,
    "UINT16": onnx.TensorProto.UINT16,
    "UINT32": onnx.TensorProto.UINT32,
    "UINT64": onnx.TensorProto.UINT64,
    "INT8": onnx_models.INT8,
    "INT16": onnx.TensorProto.INT16,
    "INT32": onnx_models.INT32,
    "INT64": onnx_models.INT64,
    "FP16": onnx_models.FLOAT16,
    "FP32": onnx_models.FLOAT,
    "FP64": onnx_models.DOUBLE,
    "BYTES": onnx_models.STRING,
    "BF16": onnx_models.BFLOAT16,
}


def test_add_sub_answers_both_outputs_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.add_sub(dims=(2,)))
    outputs = model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))
    assert list(outputs) == ["OUTPUT0", "OUTPUT1"]
    assert outputs["OUTPUT0"].tolist() == [[11, 22]]
    assert outputs["OUTPUT1"].tolist() == [[-9, -18]]


def test_a_row_that_cannot_be_computed_fails_alone(tmp_path: Path) -> None:
    model = load(tmp_path, "", onnx_models.gather_by_index())
    answers, error = gather_one_bad_row(model, "INPUT0", "INDEX", "OUTPUT0")
    assert answers == [[[11]], [[13]]]
    assert "onnx runtime error" in error


def test_a_batch_runs_once_and_each_request_gets_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(tmp_path, onnx_model=onnx_models.identity(dims=(2,)))
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


def test_only_wanted_outputs_are_computed(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.add_sub(dims=(2,)))
    assert isinstance(model.instance, OnnxInstance)
    asked: list[list[str]] = []
    run = model.instance._run  # noqa: SLF001 - the framework's call, whose sharing or number no answer tells
    assert run is not None

    def spy(names: list[str], inputs: dict[str, Array], options: object) -> object:
        asked.append(names)
        return run(names, inputs, options)

    model.instance._run = spy  # type: ignore[assignment]  # it returns what `run` returns  # noqa: SLF001 - the framework's call, whose sharing or number no answer tells
    inputs = {"INPUT0": floats([1, 2]), "INPUT1": floats([10, 20])}
    assert list(model(("OUTPUT1",), **inputs)) == ["OUTPUT1"]
    first, second = model.run(request(dict(inputs), ("OUTPUT1",)), request(dict(inputs), ("OUTPUT1",)))
    both, one = model.run(request(dict(inputs)), request(dict(inputs), ("OUTPUT0",)))
    assert asked == [["OUTPUT1"], ["OUTPUT1"], ["OUTPUT0", "OUTPUT1"]]
    assert (list(first.outputs), list(second.outputs)) == (["OUTPUT1"], ["OUTPUT1"])
    assert (list(both.outputs), list(one.outputs)) == (["OUTPUT0", "OUTPUT1"], ["OUTPUT0"])


@pytest.mark.parametrize("datatype", ALL, ids=lambda datatype: datatype.name)
def test_every_datatype_passes_unchanged_single_and_batched(tmp_path: Path, datatype: Datatype) -> None:
    model = load(tmp_path, onnx_model=onnx_models.identity(ONNX_TYPES[datatype.name], (3,)))
    if datatype is BYTES:
        array = strings([b"", "grüße".encode(), b"a\0b\0"])
    else:
        array = np.array([[0, 1, 100]]).astype(datatype.numpy)
    first = wire(array, datatype)
    (response,) = model.run(request({"INPUT0": first}))
    assert response.outputs["OUTPUT0"].datatype is datatype
    assert response.outputs["OUTPUT0"].shape == (1, 3)
    assert bytes(response.outputs["OUTPUT0"].data) == bytes(first.data)
    responses = model.run(request({"INPUT0": first}), request({"INPUT0": wire(array, datatype)}))
    assert [bytes(each.outputs["OUTPUT0"].data) for each in responses] == [bytes(first.data)] * 2


def test_bf16_and_other_datatypes_meet_in_one_model(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Cast", ["INPUT0"], ["OUTPUT0"], to=onnx_models.FLOAT)]
    cast = onnx_models.build(
        nodes,
        {"INPUT0": (onnx_models.BFLOAT16, ["batch", 2])},
        {"OUTPUT0": (onnx_models.FLOAT, ["batch", 2])},
    )
    model = load(tmp_path, onnx_model=cast)
    bits = np.array([[0x3F80, 0xC000]], "<u2")
    assert model(INPUT0=wire(bits, BF16))["OUTPUT0"].tolist() == [[1.0, -2.0]]


def test_empty_tensors_pass(tmp_path: Path) -> None:
    for name, kind in (
        ("FP32", onnx_models.FLOAT),
        ("BF16", onnx_models.BFLOAT16),
        ("BYTES", onnx_models.STRING),
    ):
        datatype = BY_NAME[name]
        model = load(tmp_path / name, "max_batch_size: 2", onnx_models.identity(kind, ["n"]))
        (response,) = model.run(request({"INPUT0": Tensor(datatype, (1, 0), b"")}))
        assert response.outputs["OUTPUT0"].shape == (1, 0)
        assert bytes(response.outputs["OUTPUT0"].data) == b""


def test_string_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.string_identity((1,)))
    with pytest.raises(
        InvalidArgumentError, match=r"input 'INPUT0' holds a string that is not UTF-8 .* byte 1"
    ):
        model(INPUT0=strings([b"a\xff"]))


def test_big_tensors_go_in_and_out_uncopied(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.identity(dims=["n"]))
    big = wire(np.zeros((1, 2_500_000), np.float32))
    batch = model.batch(request({"INPUT0": big}))
    given = batch.gather()["INPUT0"]
    assert not given.flags.writeable
    assert np.shares_memory(given, np.frombuffer(big.data, np.uint8))
    model.instance.execute(batch)
    output = batch.responses[0].outputs["OUTPUT0"]
    assert np.shares_memory(output.array, np.frombuffer(output.data, np.uint8))
    assert len(output.data) == 10_000_000


def test_unaligned_views_are_made_fit_for_kernels(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.add_sub(dims=(2,)))
    body = b"x" + floats([1, 2]).tobytes()
    tensor = Tensor(FP32, (1, 2), memoryview(body)[1:])
    assert model(INPUT0=tensor, INPUT1=floats([10, 20]))["OUTPUT0"].tolist() == [[11, 22]]


def test_reshape_shows_clients_and_model_different_shapes(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [1, 4] reshape { shape: [2, 2] } }
    """
    model = load(tmp_path, text, onnx_models.identity(dims=(2, 2)))
    assert model(INPUT0=floats([1, 2, 3, 4]))["OUTPUT0"].tolist() == [[[1, 2, 3, 4]]]
    responses = model.run(
        request({"INPUT0": floats([1, 2, 3, 4])}), request({"INPUT0": floats([5, 6, 7, 8])})
    )
    assert responses[1].outputs["OUTPUT0"].array.tolist() == [[[5, 6, 7, 8]]]


def test_scalars_per_row_are_one_element_to_clients(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.identity(dims=()))
    assert model(INPUT0=floats([7], [8]))["OUTPUT0"].tolist() == [[7], [8]]


def test_scalar_of_a_model_without_batching_is_one_element(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.identity(dims=(), batching=False))
    assert model(INPUT0=np.array([7], np.float32))["OUTPUT0"].tolist() == [7]


def test_optional_input_may_be_left_out(tmp_path: Path) -> None:
    text = """
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [2] }
        input { name: "BIAS" data_type: TYPE_FP32 dims: [2] optional: true }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [2] }
    """
    model = load(tmp_path, text, onnx_models.with_default_input())
    one = np.array([1, 2], np.float32)
    assert model(INPUT0=one)["OUTPUT0"].tolist() == [11, 22]
    assert model(INPUT0=one, BIAS=one)["OUTPUT0"].tolist() == [2, 4]


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
    model = load(tmp_path, text, onnx_models.ragged_sum())
    responses = model.run(
        request({"RAGGED": floats([1, 2, 3])}),
        request({"RAGGED": floats([10])}),
        request({"RAGGED": floats([4, 5])}),
    )
    sums = [response.outputs["OUTPUT"].array.tolist() for response in responses]
    assert sums == [[[6]], [[10]], [[9]]]
    assert model(RAGGED=floats([1, 2, 3]))["OUTPUT"].tolist() == [[6]]


@pytest.mark.parametrize("datatype", ALL, ids=lambda datatype: datatype.name)
def test_ragged_inputs_of_every_datatype_pass_unchanged(tmp_path: Path, datatype: Datatype) -> None:
    text = f"""
        max_batch_size: 8
        input {{ name: "INPUT0" data_type: {datatype.config_name} dims: [-1] allow_ragged_batch: true }}
        output {{ name: "OUTPUT0" data_type: {datatype.config_name} dims: [-1] }}
        batch_output {{ target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }}
    """
    flat = onnx_models.identity(ONNX_TYPES[datatype.name], ["n"], batching=False)
    model = load(tmp_path, text, flat)
    if datatype is BYTES:
        rows = [strings([b"", "grüße".encode(), b"a\0b\0"]), np.empty((1, 0), np.object_), strings([b"x"])]
    else:
        rows = [np.array([row]).astype(datatype.numpy) for row in ([0, 1, 100], [], [1])]
    tensors = [wire(row, datatype) for row in rows]
    for count in (1, 3):
        answers = model.run(*[request({"INPUT0": tensor}) for tensor in tensors[:count]])
        outputs = [answer.outputs["OUTPUT0"] for answer in answers]
        assert [output.shape for output in outputs] == [row.shape for row in rows[:count]]
        assert [bytes(output.data) for output in outputs] == [
            bytes(tensor.data) for tensor in tensors[:count]
        ]


def test_ragged_input_of_fixed_dims_is_not_bound_under_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = """
        max_batch_size: 8
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [2] allow_ragged_batch: true }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [2] }
        batch_output { target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }
    """
    model = load(tmp_path, text, onnx_models.identity(dims=["n"], batching=False))
    with caplog.at_level("DEBUG", "halimede"):
        assert model(INPUT0=floats([1, 2], [3, 4]))["OUTPUT0"].tolist() == [[1, 2], [3, 4]]
    assert "bound buffers failed" not in caplog.text


def test_run_error_carries_onnxruntimes_status(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = load(tmp_path, onnx_model=onnx_models.gather_by_index())
    with pytest.raises(InternalError, match=r"onnx runtime error 1: .*Out of range value in index tensor"):
        model(INPUT0=floats([1, 2, 3, 4]), INDEX=np.array([[9]]))
    assert model(INPUT0=floats([1, 2, 3, 4]), INDEX=np.array([[2]]))["OUTPUT0"].tolist() == [[3]]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : bad\nshape", "onnx runtime error 2: bad\nshape"),
        ("no status at all", "onnx runtime error 1: no status at all"),
    ],
)
def test_error_text_has_status_and_message(text: str, message: str) -> None:
    assert onnx_error(RuntimeError(text)).message == message


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file .*/m/1/model\.onnx"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        *FOREIGN,
        (ZIP, "it is a zip archive"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "it is XML"),
        (b"", "it is empty"),
    ],
)
def test_an_unreadable_file_is_told_by_what_it_looks_like(tmp_path: Path, content: bytes, text: str) -> None:
    source = source_of(tmp_path, "")
    (source.version_directory / "model.onnx").write_bytes(content)
    with pytest.raises(InternalError, match=rf"^onnx runtime error \d: .*\({text}[^)]*\)$"):
        Loaded(source)


def test_broken_file_is_onnxruntimes_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = source_of(tmp_path, "")
    (source.version_directory / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(InternalError, match=r"onnx runtime error 7: .*Protobuf parsing failed"):
        Loaded(source)
    assert capfd.readouterr().out == ""


def test_default_model_filename_names_the_file(tmp_path: Path) -> None:
    source = source_of(tmp_path, 'default_model_filename: "other.onnx"', onnx_models.identity(dims=(1,)))
    (source.version_directory / "model.onnx").rename(source.version_directory / "other.onnx")
    assert Loaded(source)(INPUT0=floats([1]))["OUTPUT0"].tolist() == [[1]]


def test_model_may_be_a_directory_with_external_data(tmp_path: Path) -> None:
    source = source_of(tmp_path, "")
    inner = source.version_directory / "model.onnx"
    inner.mkdir()
    weights = onnx.numpy_helper.from_array(np.arange(2048, dtype=np.float32), "W")
    model = onnx_models.build(
        [onnx.helper.make_node("Add", ["INPUT0", "W"], ["OUTPUT0"])],
        {"INPUT0": (onnx_models.FLOAT, ["batch", 2048])},
        {"OUTPUT0": (onnx_models.FLOAT, ["batch", 2048])},
        [weights],
    )
    onnx.save(model, str(inner / "model.onnx"), save_as_external_data=True, location="weights.bin")
    assert (inner / "weights.bin").is_file()
    output = Loaded(source)(INPUT0=np.ones((1, 2048), np.float32))["OUTPUT0"]
    assert output[0, :3].tolist() == [1, 2, 3]


def test_instances_share_one_session_and_run_at_once(tmp_path: Path) -> None:
    source = source_of(tmp_path, "", onnx_models.add_sub(dims=(2,)))
    model = Loaded(source)
    assert isinstance(model.backend, OnnxModel)
    instances = [model.backend.create_instance(InstanceSpec(f"m_{i}", i)) for i in range(4)]
    assert len(model.backend._sessions) == 1  # noqa: SLF001 - that sessions are shared shows in memory only
    add_at_once(model, instances, "INPUT0", "INPUT1", "OUTPUT0")


def test_instances_made_at_once_load_the_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(tmp_path, "", onnx_models.identity(dims=(2,)))
    backend = OnnxModel(source, BackendOptions())
    loads: list[object] = []
    load_session = backend._load  # noqa: SLF001 - the step whose timing the test holds

    def counted(kind: str, device: int) -> object:
        loads.append((kind, device))
        return load_session(kind, device)

    monkeypatch.setattr(backend, "_load", counted)
    threads = [
        threading.Thread(target=backend.create_instance, args=(InstanceSpec(f"m_{i}", i),)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [("KIND_CPU", 0)]


def test_cpu_instances_never_block(tmp_path: Path) -> None:
    assert not load(tmp_path, onnx_model=onnx_models.identity()).instance.may_block


def test_closing_gives_the_session_back(tmp_path: Path) -> None:
    model = load(tmp_path, onnx_model=onnx_models.identity(dims=(2,)))
    assert isinstance(model.backend, OnnxModel)
    session = weakref.ref(next(iter(model.backend._sessions.values())))  # noqa: SLF001 - that sessions are shared shows in memory only
    output = model(INPUT0=floats([1, 2]))["OUTPUT0"]
    model.close()
    gc.collect()
    assert session() is None
    shutil.rmtree(tmp_path)
    # what a response holds outlives the session
    assert output.tolist() == [[1, 2]]


GLOBAL_POOL = """
import os, sys
from pathlib import Path
from halimede.backends.base import BackendOptions
from tests.backends.helpers import floats, load
from tests.support import onnx_models

tasks = lambda: len(os.listdir("/proc/self/task"))
settings = {"enable-global-threadpool": "1", "intra_op_thread_count": "3", "inter_op_thread_count": "1"}
directory = Path(sys.argv[1])
first = load(directory / "a", onnx_model=onnx_models.identity(dims=(1,)), options=BackendOptions(settings))
before = tasks()
second = load(directory / "b", "parameters { key: 'intra_op_thread_count' value { string_value: '9' } }",
              onnx_models.identity(dims=(1,)), BackendOptions(settings))
assert tasks() == before, (before, tasks())
assert second(INPUT0=floats([1]))["OUTPUT0"].tolist() == [[1]]
"""


def load_matrix(directory: str) -> Callable[[], Loaded]:
    """What loads a model with 16 MiB of weights, and runs it."""
    weights = onnx.numpy_helper.from_array(np.ones((2048, 2048), np.float32), "W")
    model = onnx_models.build(
        [onnx.helper.make_node("MatMul", ["INPUT0", "W"], ["OUTPUT0"])],
        {"INPUT0": (onnx_models.FLOAT, ["batch", 2048])},
        {"OUTPUT0": (onnx_models.FLOAT, ["batch", 2048])},
        [weights],
    )

    def load_and_run() -> Loaded:
        loaded = load(Path(directory), "", model)
        loaded(INPUT0=np.ones((4, 2048), np.float32))
        return loaded

    return load_and_run


def test_memory_is_flat_over_loads_and_weights_are_held_once(tmp_path: Path) -> None:
    memory = memory_over_loads(load_matrix, tmp_path, loads=8)
    assert memory.grown < 4, memory
    assert 12 < memory.held < 40, memory


def test_global_pool_serves_every_model(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GLOBAL_POOL, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        timeout=100,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_an_output_of_more_rows_than_the_batch_is_an_error_and_writes_nowhere_else(tmp_path: Path) -> None:
    doubled = onnx_models.build(
        [onnx.helper.make_node("Concat", ["X", "X"], ["Y"], axis=0)],
        {"X": (onnx_models.FLOAT, ["batch", 4])},
        {"Y": (onnx_models.FLOAT, ["batch", 4])},
    )
    model = load(tmp_path, "", doubled)
    item = Batch(model.signature, [request({"X": np.ones((1, 4), np.float32)})], 1)
    with pytest.raises(
        InternalError, match=r"output 'Y' has shape \[2, 4\], which does not fit a batch of 1"
    ):
        model.instance.execute(item)
