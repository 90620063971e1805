import gc
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede.backends.base import InstanceSpec
from halimede.core.datatypes import ALL, BF16, BYTES, FP32, Datatype
from halimede.core.errors import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
)
from halimede.core.tensors import Tensor
from tests.backends.helpers import Loaded, add_at_once, floats, gather_one_bad_row, request, strings, wire
from tests.backends.memory import memory_over_loads
from tests.support.foreign_files import each_foreign_file

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")

from halimede.backends.pytorch.errors import pytorch_error  # noqa: E402
from tests.frameworks.pytorch import torch_models  # noqa: E402
from tests.frameworks.pytorch.torch_helpers import ADD_SUB, config_text, load, source_at, source_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def test_names_of_forward_choose_the_arguments_in_any_order(tmp_path: Path) -> None:
    inputs = {"INPUT1": "FP32 [2]", "INPUT0": "FP32 [2]"}
    model = load(tmp_path, torch_models.AddSub(), inputs, {"SUM": "FP32 [2]", "DIFFERENCE": "FP32 [2]"})
    outputs = model(INPUT0=floats([1, 2]), INPUT1=floats([10, 20]))
    assert outputs["SUM"].tolist() == [[11, 22]]
    assert outputs["DIFFERENCE"].tolist() == [[-9, -18]]


def test_indexed_names_choose_by_position(tmp_path: Path) -> None:
    inputs = {"B__1": "FP32 [2]", "A__0": "FP32 [2]"}
    outputs = {"D__1": "FP32 [2]", "S__0": "FP32 [2]"}
    model = load(tmp_path, torch_models.AddSub(), inputs, outputs)
    answer = model(A__0=floats([1, 2]), B__1=floats([10, 20]))
    assert answer["S__0"].tolist() == [[11, 22]]
    assert answer["D__1"].tolist() == [[-9, -18]]


def test_other_names_are_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.AddSub(), {"a": "FP32 [2]", "b": "FP32 [2]"}, {"s": "FP32 [2]"})
    assert model(a=floats([1, 2]), b=floats([10, 20]))["s"].tolist() == [[11, 22]]


def test_a_row_that_cannot_be_computed_fails_alone(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Gather(), {"x": "FP32 [4]", "index": "INT64 [1]"}, {"y": "FP32 [1]"})
    answers, error = gather_one_bad_row(model, "x", "index", "y")
    assert answers == [[[11]], [[13]]]
    assert "out of bounds" in error


def test_a_batch_runs_once_and_each_request_gets_its_rows(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Linear(2), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    rows = [floats([1, 2]), floats([3, 4], [5, 6]), floats([7, 8])]
    together = model.run(*(request({"x": each}) for each in rows))
    for response, each in zip(together, rows, strict=True):
        assert np.allclose(response.outputs["y"].array, model(x=each)["y"])


def test_dictionaries_go_in_and_out_by_key(tmp_path: Path) -> None:
    model = load(
        tmp_path,
        torch_models.Keyed(),
        {"a": "FP32 [2]", "b": "FP32 [2]"},
        {"first": "FP32 [2]", "sum": "FP32 [2]"},
    )
    answer = model(a=floats([1, 2]), b=floats([10, 20]))
    assert answer["sum"].tolist() == [[11, 22]]
    assert answer["first"].tolist() == [[1, 2]]


def test_a_key_that_the_model_does_not_give_is_named(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Keyed(), {"a": "FP32 [2]", "b": "FP32 [2]"}, {"total": "FP32 [2]"})
    with pytest.raises(InternalError, match="'total' is not among what the model gave: keys sum, first"):
        model(a=floats([1, 2]), b=floats([10, 20]))


def test_a_list_of_tensors_is_outputs_by_position(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Parts(), {"x": "FP32 [2]"}, {"p": "FP32 [2]", "q": "FP32 [2]"})
    assert model(x=floats([1, 2]))["q"].tolist() == [[2, 3]]
    longer = load(tmp_path, torch_models.Parts(), {"x": "FP32 [2]"}, {"p__2": "FP32 [2]"})
    with pytest.raises(InternalError, match="'p__2' is not among what the model gave: 2 values"):
        longer(x=floats([1, 2]))


def test_strings_pass_batched_and_not(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Shout(), {"texts": "STRING [1]"}, {"loud": "STRING [1]"})
    first, second = model.run(
        request({"texts": strings(["grüße".encode()])}), request({"texts": strings([b"a"], [b""])})
    )
    assert first.outputs["loud"].array.tolist() == [["grüße!".encode()]]
    assert second.outputs["loud"].array.tolist() == [[b"a!"], [b"!"]]
    flat = load(tmp_path, torch_models.Shout(), {"texts": "STRING [-1]"}, {"loud": "STRING [-1]"}, batch=0)
    assert flat(texts=np.array([b"a", b"b"], np.object_))["loud"].tolist() == [b"a!", b"b!"]
    with pytest.raises(InvalidArgumentError, match=r"'texts' holds a string that is not UTF-8 .* byte 1"):
        flat(texts=np.array([b"a\xff"], np.object_))


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (
            {"texts": "FP32 [1]"},
            {"loud": "STRING [1]"},
            "TYPE_FP32 for input 'texts', model provides TYPE_STRING",
        ),
        (
            {"texts": "STRING [1]"},
            {"loud": "FP32 [1]"},
            "TYPE_FP32 for output 'loud', model provides TYPE_STRING",
        ),
        ({"texts": "STRING [2, 2]"}, {"loud": "STRING [1]"}, r"must have one dimension, got \[2, 2\]"),
    ],
)
def test_strings_and_tensors_are_told_apart_at_load(
    tmp_path: Path, inputs: dict[str, str], outputs: dict[str, str], expected: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        load(tmp_path, torch_models.Shout(), inputs, outputs)


@pytest.mark.parametrize("datatype", [each for each in ALL if each is not BYTES], ids=lambda each: each.name)
def test_every_datatype_passes_unchanged_single_and_batched(tmp_path: Path, datatype: Datatype) -> None:
    tensors = f"{datatype.name} [3]"
    model = load(tmp_path, torch_models.Identity(), {"x": tensors}, {"y": tensors})
    first = wire(np.array([[0, 1, 100]]).astype(datatype.numpy), datatype)
    second = wire(np.array([[1, 0, 1]]).astype(datatype.numpy), datatype)
    for sent in ([first], [first, second]):
        responses = model.run(*(request({"x": each}) for each in sent))
        for response, each in zip(responses, sent, strict=True):
            assert response.outputs["y"].datatype is datatype
            assert bytes(response.outputs["y"].data) == bytes(each.data)


def test_bf16_computes(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.AddSub(), dict.fromkeys(ADD_SUB, "BF16 [2]"), {"s": "BF16 [2]"})
    ones = wire(np.array([[0x3F80, 0x3F80]], "<u2"), BF16)
    assert model(INPUT0=ones, INPUT1=ones)["s"].tolist() == [[0x4000, 0x4000]]


def test_a_model_that_writes_to_its_input_leaves_the_request_alone(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Doubler(), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    sent = wire(floats([1, 2]))
    for _ in range(2):
        assert model(x=sent)["y"].tolist() == [[2, 4]]
    assert sent.array.tolist() == [[1, 2]]
    assert not model.instance.repeatable


def test_an_output_that_is_state_keeps_its_value(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Counter(), {"x": "FP32 [1]"}, {"n": "FP32 [1]"})
    first = model(x=floats([0]))["n"]
    second = model(x=floats([0]))["n"]
    assert (first.tolist(), second.tolist()) == ([[1]], [[2]])


def test_big_inputs_go_in_uncopied_and_an_echo_of_one_is_a_copy(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Identity(), {"x": "FP32 [-1]"}, {"y": "FP32 [-1]"})
    sent = wire(np.ones((1, 1000), np.float32))
    batch = model.batch(request({"x": sent}))
    seen: list[int] = []
    program = model.instance._program  # type: ignore[attr-defined]  # noqa: SLF001 - that it is shared or freed shows in memory only
    call = program.call

    def spy(values: Any) -> Any:
        seen.append(values[0].data_ptr())
        return call(values)

    program.call = spy
    model.instance.execute(batch)
    assert seen == [sent.array.ctypes.data]
    assert not np.shares_memory(batch.responses[0].outputs["y"].array, sent.array)


def test_unaligned_views_are_made_fit_for_kernels(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.AddSub(), ADD_SUB, {"s": "FP32 [2]"})
    body = b"x" + floats([1, 2]).tobytes()
    shifted = Tensor(FP32, (1, 2), memoryview(body)[1:])
    assert model(INPUT0=shifted, INPUT1=shifted)["s"].tolist() == [[2, 4]]


def test_optional_inputs_and_other_defaults_may_be_left_out(tmp_path: Path) -> None:
    text = config_text({"x": "FP32 [2]"}, {"y": "FP32 [2]"}, 0)
    text += 'input { name: "bias" data_type: TYPE_FP32 dims: [2] optional: true }'
    model = Loaded(source_of(tmp_path, torch_models.Optional(), text))
    x = np.array([1, 2], np.float32)
    assert model(x=x)["y"].tolist() == [2, 4]
    assert model(x=x, bias=x)["y"].tolist() == [4, 8]


def test_an_instance_that_rests_ends_its_threads_and_runs_again(tmp_path: Path) -> None:
    wide = "FP32 [1000000]"
    inputs = {"INPUT0": wide, "INPUT1": wide}
    model = load(tmp_path, torch_models.AddSub(), inputs, {"SUM": wide, "DIFFERENCE": wide})
    rows = np.ones((1, 1_000_000), np.float32)
    counts: list[int] = []

    def work() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(4)
        try:
            for _ in range(2):
                assert (model(INPUT0=rows, INPUT1=rows)["SUM"] == 2).all()
                counts.append(threads())
                model.instance.rest()
                counts.append(threads())
        finally:
            torch.set_num_threads(before)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert [a - b for a, b in zip(counts[::2], counts[1::2], strict=True)] == [3, 3]


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_scalars_are_one_element(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Sum(), {"x": "FP32 [2]"}, {"y": "FP32 [1]"}, batch=0)
    assert model(x=np.array([1, 2], np.float32))["y"].tolist() == [3]


def test_modules_saved_in_training_mode_are_served_in_evaluation_mode(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Training().train(), {"x": "FP32 [1]"}, {"y": "FP32 [1]"})
    assert model(x=floats([1]))["y"].tolist() == [[1]]


def test_frozen_modules_are_served(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "model.pt"
    path.parent.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.freeze(torch.jit.script(torch_models.Linear(2).eval())), path)
    model = Loaded(source_at(tmp_path, config_text({"x": "FP32 [2]"}, {"y": "FP32 [2]"})))
    assert model(x=floats([1, 2]))["y"].shape == (1, 2)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (
            {"INPUT0": "FP32 [2]"},
            {"s": "FP32 [2]"},
            r"it requires input 'INPUT1', which is not listed; .*\(INPUT0: Tensor, INPUT1: Tensor\)",
        ),
        (
            {"a__0": "FP32 [2]", "b__2": "FP32 [2]"},
            {"s": "FP32 [2]"},
            "input 'b__2' would be number 2, from 0",
        ),
        ({"a__0": "FP32 [2]", "b__0": "FP32 [2]"}, {"s": "FP32 [2]"}, "'a__0' and 'b__0' are the same one"),
        ({"INPUT1": "FP32 [2]", "INPUT": "FP32 [2]"}, {"s": "FP32 [2]"}, "it has no input 'INPUT'; "),
        (ADD_SUB, {"s": "FP32 [2]", "d": "FP32 [2]", "e": "FP32 [2]"}, "output 'e' would be number 2"),
        (ADD_SUB, {"s": "STRING [2]"}, "expects strings for output 's', model provides a tensor"),
    ],
)
def test_names_that_do_not_fit_are_refused_with_both_sides(
    tmp_path: Path, inputs: dict[str, str], outputs: dict[str, str], expected: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        load(tmp_path, torch_models.AddSub(), inputs, outputs)


def test_torchscript_without_a_configuration_says_what_forward_takes(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"must list input and output. It takes \(INPUT0: Tensor, INPUT1: Tensor\) and gives Tuple",
    ):
        load(tmp_path, torch_models.AddSub(), {}, {})


def test_an_argument_that_no_request_can_give_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"unable to load model 'm': argument 'power' .* is a int"):
        load(tmp_path, torch_models.Number(), {"x": "FP32 [1]", "power": "INT32 [1]"}, {"y": "FP32 [1]"})


def test_outputs_of_another_datatype_are_refused_with_both_sides(tmp_path: Path) -> None:
    wrong = load(tmp_path, torch_models.AddSub(), ADD_SUB, {"s": "FP64 [2]"})
    ones = floats([1, 1])
    with pytest.raises(InternalError, match=r"'s' of the model is of datatype TYPE_FP32, .* says TYPE_FP64"):
        wrong(INPUT0=ones, INPUT1=ones)


@pytest.mark.parametrize("dims", ["[-1]", "[2]", "[-1, -1, -1]", "[2, 1, 2]", "[7, 7]"])
def test_outputs_have_the_shape_that_the_model_gives_whatever_dims_are_configured(
    tmp_path: Path, dims: str
) -> None:
    model = load(tmp_path, torch_models.Boxes(), {"x": "FP32 [4]"}, {"y": f"FP32 {dims}"})
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(model(x=rows)["y"], rows.reshape(2, 2, 1, 2))
    responses = model.run(*(request({"x": row[np.newaxis]}) for row in rows))
    assert [response.outputs["y"].shape for response in responses] == [(1, 2, 1, 2)] * 2
    assert np.array_equal(responses[1].outputs["y"].array, rows[1:].reshape(1, 2, 1, 2))


def test_outputs_without_batching_have_the_shape_that_the_model_gives(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Boxes(), {"x": "FP32 [-1, 4]"}, {"y": "FP32 [-1]"}, batch=0)
    assert model(x=np.ones((3, 4), np.float32))["y"].shape == (3, 2, 1, 2)


def test_an_output_that_does_not_fit_its_reshape_is_an_error(tmp_path: Path) -> None:
    outputs = {"y": "FP32 [3, 1] reshape { shape: [3] }"}
    model = load(tmp_path, torch_models.Boxes(), {"x": "FP32 [4]"}, outputs)
    with pytest.raises(InternalError, match=r"^output tensor shape does not match size of output for 'y'$"):
        model(x=floats([1, 2, 3, 4]))


@pytest.mark.parametrize("rows", [1, 3])
def test_an_output_that_has_not_as_many_rows_as_the_batch_is_refused(tmp_path: Path, rows: int) -> None:
    model = load(tmp_path, torch_models.Flat(), {"x": "FP32 [4]"}, {"y": "FP32 [-1]"})
    with pytest.raises(InternalError, match=f"which does not fit a batch of {rows}"):
        model(x=np.ones((rows, 4), np.float32))


def test_errors_of_a_run_say_why_without_a_traceback(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Linear(4), {"x": "FP32 [-1]"}, {"y": "FP32 [4]"})
    with pytest.raises(InternalError) as caught:
        model(x=floats([1, 2, 3]))
    assert caught.value.message == (
        "PyTorch execute failure: mat1 and mat2 shapes cannot be multiplied (1x3 and 4x4)"
    )
    assert model(x=floats([1, 2, 3, 4]))["y"].shape == (1, 4)


def test_want_of_memory_is_an_error_of_its_own() -> None:
    text = (
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
    )
    assert isinstance(pytorch_error("PyTorch execute failure", RuntimeError(text)), OutOfMemoryError)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is no PyTorch archive, or is cut off"),
        (b"not a model" * 50, "is no PyTorch archive, or is cut off"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    source = source_of(tmp_path, torch_models.AddSub(), config_text(ADD_SUB, {"s": "FP32 [2]"}))
    (tmp_path / "m" / "1" / "model.pt").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=f"model.pt {expected}"):
        Loaded(source)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path, torch_models.AddSub(), config_text(ADD_SUB, {"s": "FP32 [2]"}))
    path = tmp_path / "m" / "1" / "model.pt"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InvalidArgumentError, match=r"model\.pt is no PyTorch archive, or is cut off"):
        Loaded(source)


def test_a_pickled_module_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "m" / "1" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save(torch_models.Linear().state_dict(), path, pickle_module=pickle)
    with pytest.raises(InvalidArgumentError, match=r"is a pickled module or its weights.*torch\.jit\.save"):
        Loaded(source_at(tmp_path, config_text(ADD_SUB, {"s": "FP32 [2]"})))


def test_an_unknown_runtime_is_refused_by_name(tmp_path: Path) -> None:
    text = config_text(ADD_SUB, {"s": "FP32 [2]"}) + ' runtime: "libother.so"'
    with pytest.raises(
        UnsupportedError, match=r"no runtime 'libother\.so'; leave it out, or set 'model\.py'"
    ):
        Loaded(source_of(tmp_path, torch_models.AddSub(), text))


def test_the_python_runtime_serves_torchscript_where_there_is_no_code(tmp_path: Path) -> None:
    text = config_text(ADD_SUB, {"s": "FP32 [2]", "d": "FP32 [2]"}) + ' runtime: "model.py"'
    model = Loaded(source_of(tmp_path, torch_models.AddSub(), text))
    assert model(INPUT0=floats([1, 2]), INPUT1=floats([1, 1]))["s"].tolist() == [[2, 3]]


def test_torchscript_is_not_compiled(tmp_path: Path) -> None:
    parameters = {"TORCH_COMPILE_OPTIONAL_PARAMETERS": "{}"}
    with pytest.raises(InvalidArgumentError, match=r"and model\.pt is TorchScript"):
        load(tmp_path, torch_models.AddSub(), ADD_SUB, {"s": "FP32 [2]"}, parameters=parameters)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    with pytest.raises(NotFoundError, match=r"there is no file .*/m/1/model\.pt"):
        Loaded(source_at(tmp_path, config_text(ADD_SUB, {"s": "FP32 [2]"})))


def test_weights_are_shared_where_the_parameter_says_so(tmp_path: Path) -> None:
    for value, shared in (("true", True), ("false", False)):
        model = load(
            tmp_path,
            torch_models.Linear(2),
            {"x": "FP32 [2]"},
            {"y": "FP32 [2]"},
            parameters={"ENABLE_WEIGHT_SHARING": value},
        )
        other = model.backend.create_instance(InstanceSpec("m_1", 1))
        assert (other._program is model.instance._program) is shared  # type: ignore[attr-defined]  # noqa: SLF001 - that it is shared or freed shows in memory only


def test_threads_may_run_one_module_at_once(tmp_path: Path) -> None:
    model = load(
        tmp_path, torch_models.AddSub(), ADD_SUB, {"s": "FP32 [2]"}, parameters={"ENABLE_WEIGHT_SHARING": "1"}
    )
    instances = [model.instance] + [
        model.backend.create_instance(InstanceSpec(f"m_{i}", i)) for i in (1, 2, 3)
    ]
    add_at_once(model, instances, "INPUT0", "INPUT1", "s", runs=200)


def test_closing_gives_the_module_back(tmp_path: Path) -> None:
    model = load(tmp_path, torch_models.Linear(2), {"x": "FP32 [2]"}, {"y": "FP32 [2]"})
    module = weakref.ref(model.instance._program._module)  # type: ignore[attr-defined]  # noqa: SLF001 - that it is freed shows in a weak reference only
    output = model(x=floats([1, 2]))["y"]
    model.close()
    gc.collect()
    assert module() is None
    assert output.shape == (1, 2)


def load_linear(directory: str, kind: str) -> Callable[[], Loaded]:
    """What loads a model with 20 MB of weights, and runs it."""
    text = config_text({"x": "FP32 [2290]"}, {"y": "FP32 [2290]"})
    if kind == "pt2":
        text += ' platform: "torch_aoti"'

    def load_and_run() -> Loaded:
        loaded = Loaded(source_at(Path(directory), text))
        loaded(x=np.ones((4, 2290), np.float32))
        return loaded

    return load_and_run


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_memory_is_flat_over_a_hundred_loads(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m" / "1" / f"model.{kind}"
    if kind == "pt":
        torch_models.save_script(path, torch_models.Linear(2290))
    else:
        torch_models.save_exported(path, torch_models.Linear(2290), [torch.ones(2, 2290)])
    memory = memory_over_loads(load_linear, tmp_path, kind, loads=100)
    # the weights are there once while loaded, gone afterwards
    assert memory.grown < 6, memory
    assert 15 < memory.held < 48, memory


def test_ragged_requests_run_as_one_batch(tmp_path: Path) -> None:
    text = config_text({}, {"sums": "FP32 [1]"})
    text += """
        input { name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
        batch_input { kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_INT32 source_input: "x" }
    """
    model = Loaded(source_of(tmp_path, torch_models.Ragged(), text))
    first, second = model.run(request({"x": floats([1, 2, 3])}), request({"x": floats([10])}))
    assert (first.outputs["sums"].array.tolist(), second.outputs["sums"].array.tolist()) == ([[6]], [[10]])


def test_empty_tensors_pass(tmp_path: Path) -> None:
    for datatype in (FP32, BF16):
        tensors = f"{datatype.name} [-1]"
        model = load(tmp_path, torch_models.Identity(), {"x": tensors}, {"y": tensors})
        (response,) = model.run(request({"x": Tensor(datatype, (1, 0), b"")}))
        assert response.outputs["y"].shape == (1, 0)
        assert bytes(response.outputs["y"].data) == b""


@each_foreign_file
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_an_unreadable_file_is_told_by_what_it_looks_like(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    config = f'{config_text(ADD_SUB, {"s": "FP32 [2]"})} default_model_filename: "{name}"'
    source = source_of(tmp_path, torch_models.AddSub(), config)
    (source.version_directory / name).write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=rf"{name} is no PyTorch archive, .* \({text}[^)]*\)$"):
        Loaded(source)
