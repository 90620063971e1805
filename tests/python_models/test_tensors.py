"""Inputs as models see them, and outputs as clients get them, whatever they are."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from tests.python_models.support import (
    FLOATS,
    ONES,
    TEXTS,
    Array,
    Models,
    answering,
    executing,
    grpc_inputs,
    http_inputs,
)
from tests.support.waiting import wait_until

IN_SERVER_TOO = True


def outputs(tensors: str) -> str:
    """A model that answers with these tensors."""
    return executing(
        f"x = requests[0].inputs()[0].as_numpy(); return [pb_utils.InferenceResponse([{tensors}])]"
    )


def described(
    models: Models, name: str, array: Array = ONES, **options: Any
) -> list[tuple[str, str, list[int]]]:
    """Name, datatype and shape of each output, which HTTP and gRPC agree on."""
    result = models.http.infer(name, http_inputs(IN=array), **options).get_response()
    found = [(out["name"], out["datatype"], out["shape"]) for out in result["outputs"]]
    reply = models.grpc.infer(name, grpc_inputs(IN=array), **options).get_response()
    assert [(out.name, out.datatype, list(out.shape)) for out in reply.outputs] == found
    return found


@pytest.mark.parametrize(
    ("array", "datatype", "shape"),
    [
        ("np.ones(3, np.int64)", "INT64", [3]),
        ("np.ones((2, 3, 1), np.float32)", "FP32", [2, 3, 1]),
        ("np.float32(3) + np.zeros((), np.float32).reshape(())", "FP32", []),
        ("np.zeros((0, 3), np.float32)", "FP32", [0, 3]),
        ("np.zeros((2, 0), object)", "BYTES", [2, 0]),
        ("np.ones((4, 3), np.float32)[::2].T", "FP32", [3, 2]),
        ("np.asfortranarray(np.ones((2, 3), np.float64))", "FP64", [2, 3]),
        ("np.ones(2, bool)", "BOOL", [2]),
        ("np.ones(2, np.uint8)", "UINT8", [2]),
        ("np.ones(2, np.float16)", "FP16", [2]),
        ("np.ones(2, np.longlong)", "INT64", [2]),
        ("np.array(['a', None, 5, b'x'], object)", "BYTES", [4]),
        ("np.array([b'ab', b'c'])", "BYTES", [2]),
        ("np.ma.masked_array(np.ones(3, np.float32), [0, 1, 0])", "FP32", [3]),
        ("np.broadcast_to(np.float32(2), (3, 3))", "FP32", [3, 3]),
        ("np.frombuffer(b'abcd', np.uint8)", "UINT8", [4]),
    ],
)
def test_output_of_any_datatype_and_shape_is_passed_through(
    models: Models, array: str, datatype: str, shape: list[int]
) -> None:
    expression = array.replace("np.float32(3) + ", "")
    name = models.load(outputs(f"pb_utils.Tensor('OUT', {expression})"))
    assert described(models, name) == [("OUT", datatype, shape)]


def test_values_of_a_non_contiguous_output_are_in_c_order(models: Models) -> None:
    name = models.load(
        outputs("pb_utils.Tensor('OUT', np.arange(12, dtype=np.float32).reshape(3, 4).T[::2])")
    )
    np.testing.assert_array_equal(models.infer(name), np.arange(12, dtype=np.float32).reshape(3, 4).T[::2])


@pytest.mark.parametrize(
    "array", ["np.ones(2, complex)", "np.array(['text'])", "np.ones(2, '>f4')", "np.ones(2, 'M8[s]')"]
)
def test_dtype_that_is_no_datatype_is_an_error(models: Models, array: str) -> None:
    name = models.load(outputs(f"pb_utils.Tensor('OUT', {array})"))
    assert "TritonModelException: NumPy dtype is not supported.\n\nAt:\n" in models.infer_error(name)[1]


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        ("pb_utils.Tensor('', x)", "Tensor name cannot be an empty string."),
        ("pb_utils.Tensor('OUT', [1, 2])", "incompatible constructor arguments"),
        ("None", "Output tensor for inference response should not be empty."),
        ("x", "incompatible constructor arguments"),
    ],
)
def test_what_is_no_tensor_is_an_error(models: Models, tensor: str, text: str) -> None:
    assert text in models.infer_error(models.load(outputs(tensor)))[1]


def test_output_that_is_not_configured_is_dropped(models: Models) -> None:
    name = models.load(outputs("pb_utils.Tensor('NOPE', x), pb_utils.Tensor('OUT', x)"))
    assert described(models, name) == [("OUT", "FP32", [4])]


def test_missing_output_is_missing_in_the_response(models: Models) -> None:
    assert described(models, models.load(outputs(""))) == []
    assert described(models, models.load(outputs("pb_utils.Tensor('NOPE', x)"))) == []


TWO = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "A" data_type: TYPE_FP32 dims: [-1] }, { name: "B" data_type: TYPE_FP32 dims: [-1] }]
"""


def test_only_requested_outputs_are_sent(models: Models) -> None:
    name = models.load(outputs("pb_utils.Tensor('B', x), pb_utils.Tensor('A', x)"), TWO)
    assert [output[0] for output in described(models, name)] == ["B", "A"]
    result = models.http.infer(name, http_inputs(IN=ONES), outputs=[http_requested("A")])
    assert [output["name"] for output in result.get_response()["outputs"]] == ["A"]


def http_requested(name: str) -> httpclient.InferRequestedOutput:
    return httpclient.InferRequestedOutput(name)


def test_input_tensor_itself_may_be_the_output(models: Models) -> None:
    source = executing("""
        return [pb_utils.InferenceResponse([request.inputs()[0]]) for request in requests]
    """)
    config = FLOATS.replace('"OUT"', '"IN"')
    for array in (ONES, np.arange(100000, dtype=np.float32)):
        name = models.load(source, config)
        np.testing.assert_array_equal(models.infer(name, array, "IN"), array)


@pytest.mark.parametrize("size", [3, 200_000])
def test_view_of_an_input_may_be_the_output(models: Models, size: int) -> None:
    name = models.load(answering("x[1:]"))
    array = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(models.infer(name, array), array[1:])
    name = models.load(answering("x[::-1]"))
    np.testing.assert_array_equal(models.infer(name, array), array[::-1])


@pytest.mark.parametrize("size", [3, 200_000])
def test_input_may_be_written_to(models: Models, size: int) -> None:
    name = models.load(
        executing("""
            x = requests[0].inputs()[0].as_numpy()
            x += 1
            again = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
            assert again is x
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])]
        """)
    )
    array = np.arange(size, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(models.infer(name, array), array + 1)


@pytest.mark.parametrize("size", [3, 200_000])
def test_input_that_the_model_keeps_stays_as_it_was(models: Models, size: int) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            kept = []
            def execute(self, requests):
                x = requests[0].inputs()[0].as_numpy()
                self.kept.append(x[1:])
                intact = all((array == index).all() for index, array in enumerate(self.kept))
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([intact], np.float32))])]
        """
    )
    for index in range(12):
        assert models.infer(name, np.full(size, index, np.float32)).tolist() == [1]


@pytest.mark.needs_process
def test_memory_of_kept_inputs_is_given_back_when_the_model_lets_go(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            kept = []
            def execute(self, requests):
                x = requests[0].inputs()[0].as_numpy()
                if x[0] == 0:
                    self.kept.clear()
                else:
                    self.kept.append(x)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x[:1])])]
        """
    )
    for _ in range(5):
        models.infer(name, np.full(1_000_000, 1, np.float32))
    assert shared_memory(models.pids(name)[0]) >= 5 * 4_000_000
    models.infer(name, np.zeros(1, np.float32))
    wait_until(lambda: shared_memory(models.pids(name)[0]) < 4_000_000, "the memory to be given back")


def shared_memory(pid: int) -> int:
    """Bytes of segments that a process has mapped."""
    lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    total, counts = 0, False
    for line in lines:
        if "-" in line.split(" ")[0]:
            counts = "memfd:halimede" in line
        elif counts and line.startswith("Size:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.needs_process
def test_large_tensors_go_both_ways_and_leave_nothing(models: Models) -> None:
    name = models.load(answering("x + 1"))
    array = np.random.default_rng(1).random(2_500_000, np.float32)
    for _ in range(5):
        np.testing.assert_array_equal(models.infer(name, array), array + 1)
        result = models.grpc.infer(name, grpc_inputs(IN=array))
        np.testing.assert_array_equal(result.as_numpy("OUT"), array + 1)
        del result
    gc.collect()
    wait_until(lambda: shared_memory(models.pids(name)[0]) < 3_000_000, "the worker to let go of it")
    wait_until(
        lambda: shared_memory(models.server.process.pid) < (3 << 20) * len(models.pids("")),
        "the server to let go of it",
    )


def test_output_that_the_model_changes_after_it_was_sent_is_as_it_was(models: Models) -> None:
    name = models.load(
        """
        class TritonPythonModel:
            out = np.zeros(500000, np.float32)
            def execute(self, requests):
                self.out += 1
                tensor = pb_utils.Tensor("OUT", self.out)
                requests[0].get_response_sender().send(pb_utils.InferenceResponse([tensor]), 1)
                self.out += 100
                self.out -= 100
                return None
        """
    )
    for count in range(1, 6):
        assert set(np.unique(models.infer(name))) == {count}


# BYTES


@pytest.mark.parametrize(
    "array",
    [
        np.array([b"a", b"", b"\x00\x00", "ü".encode(), b"x" * 100_000], object),
        np.array([[b"a", b"b"], [b"c", b"d"]], object),
        np.array([], object),
        np.zeros((2, 0), object),
        np.array([str(i).encode() for i in range(10_000)], object),
    ],
    ids=["odd", "square", "none", "flat", "many"],
)
def test_texts_go_both_ways(models: Models, array: Array) -> None:
    name = models.load(
        answering("np.array([bytes(e) for e in x.reshape(-1)], object).reshape(x.shape)"),
        TEXTS.replace("[-1]", "[-1]" if array.ndim == 1 else "[-1, -1]"),
    )
    back = models.infer(name, array)
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()
    assert models.grpc.infer(name, grpc_inputs(IN=array)).as_numpy("OUT").tolist() == array.tolist()


def test_texts_of_the_model_may_be_str_and_other_objects(models: Models) -> None:
    name = models.load(outputs("pb_utils.Tensor('OUT', np.array(['ä', 1, None, b'b'], object))"), TEXTS)
    assert models.infer(name, np.array([b""], object)).tolist() == ["ä".encode(), b"1", b"None", b"b"]


def test_text_that_cannot_be_encoded_is_an_error(models: Models) -> None:
    name = models.load(outputs("pb_utils.Tensor('OUT', np.array(['\\ud800'], object))"), TEXTS)
    status, message = models.infer_error(name, np.array([b""], object))
    assert status == "500"
    assert "UnicodeEncodeError" in message


BF16 = FLOATS.replace("FP32", "BF16")


def test_bf16_comes_and_goes_by_dlpack(models: Models) -> None:
    name = models.load(
        executing("""
            tensor = requests[0].inputs()[0]
            try:
                tensor.as_numpy()
            except pb_utils.TritonModelException as error:
                assert "BF16" in str(error)
            else:
                raise AssertionError("numpy has no BF16")
            return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())])]
        """),
        BF16,
    )
    data = (np.array([1, 2, -3, 0.5], np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    tensor = grpcclient.InferInput("IN", [4], "BF16")
    tensor._raw_content = data  # noqa: SLF001 - tritonclient sends nothing that is wrong
    response = models.grpc.infer(name, [tensor]).get_response()
    assert response.outputs[0].datatype == "BF16"
    assert response.raw_output_contents[0] == data


# Optional and missing inputs


def test_optional_input_that_is_not_sent_is_not_there(models: Models) -> None:
    config = FLOATS.replace(
        "dims: [-1] }]\noutput",
        'dims: [-1] }, { name: "MORE" data_type: TYPE_FP32 dims: [-1] optional: true }]\noutput',
    )
    name = models.load(
        executing("""
            more = pb_utils.get_input_tensor_by_name(requests[0], "MORE")
            count = np.array([len(requests[0].inputs()), more is not None], np.float32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", count)])]
        """),
        config,
    )
    assert models.infer(name).tolist() == [1, 0]
    assert models.http.infer(name, http_inputs(IN=ONES, MORE=ONES)).as_numpy("OUT").tolist() == [2, 1]


def test_zero_size_input_has_its_shape(models: Models) -> None:
    name = models.load(answering("np.array(x.shape, np.float32)"), FLOATS.replace("[-1]", "[-1, -1]"))
    assert models.infer(name, np.zeros((3, 0), np.float32)).tolist() == [3, 0]
    assert models.infer(name, np.zeros((0, 2), np.float32)).tolist() == [0, 2]


# Tensors that several models read


def test_branch_that_writes_to_a_shared_input_does_not_disturb_the_other(models: Models) -> None:
    scribbler = answering("np.multiply(x, 0, out=x) + 7")
    reader = executing("""
        time.sleep(0.05)  # the other branch writes meanwhile
        x = requests[0].inputs()[0].as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + 0)])]
    """)
    source, first, second = models.load(answering("x + 1")), models.load(scribbler), models.load(reader)

    def step(model: str, given: str, made: str) -> str:
        maps = f'input_map {{ key: "IN" value: "{given}" }} output_map {{ key: "OUT" value: "{made}" }}'
        return f'step {{ model_name: "{model}" model_version: -1 {maps} }}\n'

    steps = step(source, "IN", "MID") + step(first, "MID", "A") + step(second, "MID", "B")
    branches = models.load_config(TWO + 'platform: "ensemble"\nensemble_scheduling {\n' + steps + "}\n")
    for size in (4, 300_000):
        array = np.arange(size, dtype=np.float32)
        for _ in range(3):
            result = models.http.infer(branches, http_inputs(IN=array))
            assert set(result.as_numpy("A")) == {7}
            np.testing.assert_array_equal(result.as_numpy("B"), array + 1)
