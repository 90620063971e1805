"""Calls over gRPC that are wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.asking import grpc_infer, message, put, rpc, strings
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_infer import ADD_SUB, ROW, TYPED, X, classified, typed
from tests.conformance.differences import CONTENTS_OF_NO_INPUT, NO_NAME_OF_A_MODEL, OUTPUT_TWICE
from tests.conformance.steps import Rpc

Change = Callable[[Any], object]
UINT = pb.InferParameter
ONE = np.array([[1]], np.int32)


def changed(change: Change, model: str = "asked", *inputs: tuple[str, Any]) -> Rpc:
    """An inference of `asked` after a change of its request."""
    request = message(model, *(inputs or (X,)))
    change(request)
    return Rpc("ModelInfer", request)


def raw(model: str, name: str, datatype: str, shape: list[int], *contents: bytes) -> Rpc:
    """An inference with those raw contents."""
    described = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    return Rpc(
        "ModelInfer", pb.ModelInferRequest(model_name=model, inputs=[described], raw_input_contents=contents)
    )


def output_parameter(name: str, value: Any) -> Rpc:
    """An inference of `add_sub` with that parameter of its output."""
    request = message("add_sub", *ADD_SUB, outputs=["OUTPUT0"])
    put(request.outputs[0].parameters, name, value)
    return Rpc("ModelInfer", request)


def input_parameter(name: str, value: Any) -> Rpc:
    """An inference of `asked` with that parameter of its input."""
    request = message("asked", X)
    put(request.inputs[0].parameters, name, value)
    return Rpc("ModelInfer", request)


def with_parameter(name: str, value: Any, request: Any) -> None:
    """Set a parameter of the request."""
    put(request.parameters, name, value)


PARAMETERS: tuple[dict[str, Any], ...] = (
    {"sequence_id": True},
    {"sequence_id": 0.5},
    {"sequence_id": -1},
    {"sequence_id": UINT(uint64_param=3)},
    {"sequence_id": ""},
    {"sequence_start": 1},
    {"sequence_start": "true"},
    {"sequence_end": 0},
    {"priority": -1},
    {"priority": "1"},
    {"priority": True},
    {"priority": 1.5},
    {"timeout": -1},
    {"timeout": "1"},
    {"timeout": True},
    {"timeout": UINT(uint64_param=3)},
    {"timeout": 1.5},
    {"triton_x": 1},
    {"triton_enable_empty_final_response": True},
    {"triton_enable_empty_final_response": 1},
    {"triton_enable_empty_final_response": "true"},
    {"headers": "x"},
    {"binary_data_output": True},
    {"none": UINT()},
    {"uint": UINT(uint64_param=1)},
    {"": 1},
    {"sequence_id": 2**62},
)
CHANGES: dict[str, Change] = {
    "no model name": lambda one: one.ClearField("model_name"),
    "an unknown model": lambda one: setattr(one, "model_name", "unknown"),
    "an unknown version": lambda one: setattr(one, "model_version", "7"),
    "version 0": lambda one: setattr(one, "model_version", "0"),
    "version -1": lambda one: setattr(one, "model_version", "-1"),
    "version x": lambda one: setattr(one, "model_version", "x"),
    "version 1x": lambda one: setattr(one, "model_version", "1x"),
    "version 01": lambda one: setattr(one, "model_version", "01"),
    "version too large": lambda one: setattr(one, "model_version", "99999999999999999999"),
    "no inputs": lambda one: (one.ClearField("inputs"), one.ClearField("raw_input_contents")),
    "no contents": lambda one: one.ClearField("raw_input_contents"),
    "contents too short": lambda one: one.raw_input_contents.__setitem__(0, b"1234567"),
    "contents too long": lambda one: one.raw_input_contents.__setitem__(0, b"123456789"),
    "empty contents": lambda one: one.raw_input_contents.__setitem__(0, b""),
    "an unknown input": lambda one: setattr(one.inputs[0], "name", "Y"),
    "an input without name": lambda one: setattr(one.inputs[0], "name", ""),
    "another datatype": lambda one: setattr(one.inputs[0], "datatype", "FP32"),
    "an unknown datatype": lambda one: setattr(one.inputs[0], "datatype", "INT33"),
    "no datatype": lambda one: setattr(one.inputs[0], "datatype", ""),
    "a lower-case datatype": lambda one: setattr(one.inputs[0], "datatype", "int32"),
    "no shape": lambda one: one.inputs[0].ClearField("shape"),
    "a negative shape": lambda one: one.inputs[0].shape.__setitem__(0, -1),
    "a larger shape": lambda one: one.inputs[0].shape.__setitem__(0, 3),
    "a shape too large": lambda one: one.inputs[0].shape.extend([2**62, 2**10]),
    "another rank": lambda one: one.inputs[0].shape.append(1),
    "shape [0]": lambda one: one.inputs[0].shape.__setitem__(0, 0),
    "both kinds of contents": lambda one: one.inputs[0].contents.int_contents.extend([1, 2]),
    "an unknown output": lambda one: one.outputs.add(name="OTHER"),
    "an output without name": lambda one: one.outputs.add(),
    "an output twice": lambda one: (one.outputs.add(name="SEEN"), one.outputs.add(name="SEEN")),
    "an input twice": lambda one: (
        one.inputs.add().CopyFrom(one.inputs[0]),
        one.raw_input_contents.append(one.raw_input_contents[0]),
    ),
}

CASES: list[Case] = [
    *(
        case(name, changed(change), differs=OUTPUT_TWICE if name == "an output twice" else None)
        for name, change in CHANGES.items()
    ),
    case(
        "too many contents",
        changed(lambda one: one.raw_input_contents.append(b"1234")),
        differs=CONTENTS_OF_NO_INPUT,
    ),
    *(
        case(
            f"parameters {name}={value!r}".replace("\n", " ").strip(),
            changed(partial(with_parameter, name, value)),
        )
        for one in PARAMETERS
        for name, value in one.items()
    ),
    *(case(f"classification {value!r}", classified(value)) for value in (0, -1, 9, "2", True, 1.5)),
    *(
        case(f"output parameter {name}={value!r}", output_parameter(name, value))
        for name, value in (
            ("other", 1),
            ("binary_data", True),
        )
    ),
    *(
        case(f"input parameter {name}={value!r}", input_parameter(name, value))
        for name, value in (("other", 1), ("binary_data_size", 4))
    ),
    *(
        case(
            f"{field} for INT32" if field != "int_contents" else f"{field} for FP32",
            Rpc(
                "ModelInfer",
                typed(
                    "every_type",
                    "INT32" if field != "int_contents" else "FP32",
                    "INT32" if field != "int_contents" else "FP32",
                    field,
                    values[:1],
                ),
            ),
        )
        for field, values in dict(TYPED.values()).items()
    ),
    case(
        "FP16 in typed contents",
        Rpc("ModelInfer", typed("every_type", "FP16", "FP16", "fp32_contents", [1.0])),
    ),
    case(
        "too few typed contents",
        Rpc("ModelInfer", typed("every_type", "INT32", "INT32", "int_contents", [1], [2])),
    ),
    case(
        "too many typed contents",
        Rpc("ModelInfer", typed("every_type", "INT32", "INT32", "int_contents", [1, 2, 3], [2])),
    ),
    case(
        "too few typed strings",
        Rpc("ModelInfer", typed("upper", "S", "BYTES", "bytes_contents", [b"a"], [1, 2])),
    ),
    case(
        "too many typed strings",
        Rpc("ModelInfer", typed("upper", "S", "BYTES", "bytes_contents", [b"a"] * 3, [1, 2])),
    ),
    case(
        "no typed contents for a shape",
        Rpc("ModelInfer", typed("every_type", "INT32", "INT32", "int_contents", [], [2])),
    ),
    case("an unknown input with an id", grpc_infer("asked", ("Y", X[1]), id="my id")),
    case("no inputs with an id", grpc_infer("asked", id="my id")),
    case("an input missing", grpc_infer("add_sub", ADD_SUB[0])),
    case("an input too many", grpc_infer("add_sub", *ADD_SUB, ("INPUT2", ROW))),
    case("no inputs at all", grpc_infer("add_sub")),
    case("no inputs of many optional", grpc_infer("every_type")),
    case("a required input missing", grpc_infer("required_and_not", ("A", ONE))),
    case("batch size 0", grpc_infer("variable", ("X", np.zeros((0, 1, 2), np.int64)))),
    case(
        "the batch too large", grpc_infer("add_sub", *((name, np.repeat(ROW, 9, 0)) for name, _ in ADD_SUB))
    ),
    case(
        "batch sizes that differ",
        grpc_infer("required_and_not", ("A", ONE), ("C", np.repeat(ONE, 2, 0))),
    ),
    case("no batch dimension", grpc_infer("variable", ("X", np.zeros((1, 2), np.int64)))),
    case("another dimension", grpc_infer("variable", ("X", np.zeros((1, 1, 3), np.int64)))),
    case("another dimension without batching", grpc_infer("doubles", ("X", np.zeros((1, 3))))),
    case("one string of two", raw("upper", "S", "BYTES", [1, 2], strings(b"a"))),
    case("three strings of two", raw("upper", "S", "BYTES", [1, 2], strings(b"a", b"b", b"c"))),
    case("a string's length cut off", raw("upper", "S", "BYTES", [1, 2], strings(b"a") + b"\x01\x00")),
    case("a string cut off", raw("upper", "S", "BYTES", [1, 2], strings(b"a", b"bcd")[:-1])),
    case("a decoupled model", grpc_infer("repeat", ("IN", np.array([1], np.int32)))),
    case("an error of the model", grpc_infer("answers", ("KIND", np.array([b"error"], np.object_)))),
    case("a model that raises", grpc_infer("answers", ("KIND", np.array([b"raises"], np.object_)))),
    case("an error in an ensemble", grpc_infer("failing_chain", ("KIND", np.array([b"error"], np.object_)))),
    case("metadata of an unknown model", rpc("ModelMetadata", name="unknown")),
    case("metadata of an unknown version", rpc("ModelMetadata", name="add_sub", version="9")),
    case("metadata of version x", rpc("ModelMetadata", name="add_sub", version="x")),
    case("metadata without name", rpc("ModelMetadata")),
    case("configuration of an unknown model", rpc("ModelConfig", name="unknown")),
    case("configuration of version x", rpc("ModelConfig", name="add_sub", version="x")),
    case("ready of an unknown model", rpc("ModelReady", name="unknown")),
    case("ready of an unknown version", rpc("ModelReady", name="add_sub", version="9")),
    case("ready of version x", rpc("ModelReady", name="add_sub", version="x")),
    case("ready of version 0", rpc("ModelReady", name="add_sub", version="0")),
    case("ready without name", rpc("ModelReady")),
    case("statistics of an unknown model", rpc("ModelStatistics", name="unknown")),
    case("statistics of an unknown version", rpc("ModelStatistics", name="add_sub", version="9")),
    case("statistics of version x", rpc("ModelStatistics", name="add_sub", version="x")),
    case("index by repository name", rpc("RepositoryIndex", repository_name="x")),
    case("load by repository name", rpc("RepositoryModelLoad", repository_name="x", model_name="add_sub")),
    case(
        "unload by repository name", rpc("RepositoryModelUnload", repository_name="x", model_name="add_sub")
    ),
    case("load without name", rpc("RepositoryModelLoad"), differs=NO_NAME_OF_A_MODEL),
    case("unload without name", rpc("RepositoryModelUnload")),
    case("load of an unknown model", rpc("RepositoryModelLoad", model_name="unknown")),
    case("unload of an unknown model", rpc("RepositoryModelUnload", model_name="unknown")),
]
