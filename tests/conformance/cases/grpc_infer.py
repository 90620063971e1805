"""Inferences and management over gRPC that are in order."""

from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.asking import grpc_infer, message, put, rpc, strings
from tests.conformance.case import Case, case
from tests.conformance.cases.http_management import MODELS
from tests.conformance.differences import OUT_OF_RANGE, TWO_OF_ONE_NAME
from tests.conformance.steps import Rpc

ROW = np.array([[1, 2, 3, 4]], np.float32)
ADD_SUB = (("INPUT0", ROW), ("INPUT1", ROW / 10))
X = ("X", np.array([1, 2], np.int32))
TYPED: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 32767]),
    "INT32": ("int_contents", [-1, 2147483647]),
    "INT64": ("int64_contents", [-1, 2**62]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [2**32 - 1]),
    "UINT64": ("uint64_contents", [2**64 - 1]),
    "FP32": ("fp32_contents", [0.1, -0.0, float("nan")]),
    "FP64": ("fp64_contents", [0.1, float("inf")]),
    "BYTES": ("bytes_contents", [b"a", b"", b"\xff\x00"]),
}

TOO_LARGE = (
    ("INT8", "int_contents", 128),
    ("INT16", "int_contents", 32768),
    ("UINT8", "uint_contents", 256),
    ("UINT16", "uint_contents", 65536),
)


def typed(
    model: str, name: str, datatype: str, field: str, values: list[Any], shape: list[int] | None = None
) -> Any:
    """A ModelInferRequest with typed contents."""
    request = pb.ModelInferRequest(model_name=model)
    one = request.inputs.add(name=name, datatype=datatype, shape=[len(values)] if shape is None else shape)
    getattr(one.contents, field).extend(values)
    return request


def classified(count: Any) -> Rpc:
    """Classes of OUTPUT0."""
    request = message("add_sub", *ADD_SUB, outputs=["OUTPUT0"])
    put(request.outputs[0].parameters, "classification", count)
    return Rpc("ModelInfer", request)


def raw_of_each() -> list[Case]:
    """Each datatype as raw contents."""
    kinds = (
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    )
    names = (
        "BOOL",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "FP32",
        "FP64",
    )
    found = [
        case(f"{name} raw", grpc_infer("every_type", (name, np.array([0, 1, 2], kind)), id=name))
        for kind, name in zip(kinds, names, strict=True)
    ]
    text = message("every_type", ("STRING", np.array([b"a", b"", b"\xff"], np.object_)))
    return [*found, case("BYTES raw", Rpc("ModelInfer", text))]


CASES: list[Case] = [
    case("live", rpc("ServerLive")),
    case("ready", rpc("ServerReady")),
    case("server metadata", rpc("ServerMetadata"), ignored=(r"\.name$", r"\.version$", r"\.extensions")),
    *(case(f"metadata of {model}", rpc("ModelMetadata", name=model)) for model in MODELS),
    *(case(f"configuration of {model}", rpc("ModelConfig", name=model)) for model in MODELS),
    case("model ready", rpc("ModelReady", name="add_sub")),
    case("model ready by version", rpc("ModelReady", name="versions", version="3")),
    case("model not ready by version", rpc("ModelReady", name="versions", version="2")),
    case("metadata of a version", rpc("ModelMetadata", name="versions", version="1")),
    case("configuration of a version", rpc("ModelConfig", name="versions", version="1")),
    case("sums", grpc_infer("add_sub", *ADD_SUB)),
    case("an id", grpc_infer("add_sub", *ADD_SUB, id="my id")),
    case("a version", grpc_infer("versions", X, version="1")),
    case("the latest version", grpc_infer("versions", X)),
    case("one output", grpc_infer("add_sub", *ADD_SUB, outputs=["OUTPUT1"])),
    case("outputs in another order", grpc_infer("add_sub", *ADD_SUB, outputs=["OUTPUT1", "OUTPUT0"])),
    case("classes", classified(2)),
    case("classes 4", classified(4)),
    case("zero elements", grpc_infer("answers", ("KIND", np.array([b"zero_elements"], np.object_)))),
    case(
        "two tensors of one name",
        grpc_infer("answers", ("KIND", np.array([b"twice_the_same"], np.object_))),
        differs=TWO_OF_ONE_NAME,
    ),
    case("unusual floats", grpc_infer("answers", ("KIND", np.array([b"unusual_floats"], np.object_)))),
    case("an empty input", grpc_infer("every_type", ("FP32", np.array([], np.float32)))),
    case("an empty input of strings", grpc_infer("every_type", ("STRING", np.array([], np.object_)))),
    case("reshaped", grpc_infer("reshaped", ("X", ROW), ("ONE", np.array([[7]], np.int32)))),
    case("chain, one output", grpc_infer("chain", ("A", ROW), ("B", ROW), outputs=["C"], id="3")),
    *(
        case(
            f"{datatype} in {field}",
            Rpc(
                "ModelInfer",
                typed("every_type", "STRING" if datatype == "BYTES" else datatype, datatype, field, values),
            ),
        )
        for datatype, (field, values) in TYPED.items()
    ),
    *(
        case(
            f"{value} for {datatype} in {field}",
            Rpc("ModelInfer", typed("every_type", datatype, datatype, field, [value])),
            differs=OUT_OF_RANGE,
        )
        for datatype, field, value in TOO_LARGE
    ),
    case(
        "typed strings of a model that batches",
        Rpc("ModelInfer", typed("upper", "S", "BYTES", "bytes_contents", [b"a", b"b"], [1, 2])),
    ),
    case(
        "parameters of each kind",
        grpc_infer("asked", X, text="value", number=3, yes=True, half=0.5, negative=-3),
    ),
    case("a parameter uint64", grpc_infer("asked", X, large=pb.InferParameter(uint64_param=2**63))),
    case("sequence id", grpc_infer("asked", X, sequence_id=7, sequence_start=True, sequence_end=False)),
    case("sequence id as text", grpc_infer("asked", X, sequence_id="seven", sequence_end=True)),
    case("priority and timeout", grpc_infer("asked", X, priority=2, timeout=1000000)),
    case("priority uint64", grpc_infer("asked", X, priority=pb.InferParameter(uint64_param=1))),
    case("metadata with spaces", rpc("ServerLive", metadata={"custom": " value "})),
    case("log settings", rpc("LogSettings"), alone=True),
    case(
        "log settings set",
        rpc(
            "LogSettings", settings={"log_verbose_level": pb.LogSettingsRequest.SettingValue(uint32_param=1)}
        ),
        rpc(
            "LogSettings", settings={"log_verbose_level": pb.LogSettingsRequest.SettingValue(uint32_param=0)}
        ),
        alone=True,
    ),
    case(
        "log settings of wrong type",
        rpc(
            "LogSettings",
            settings={"log_verbose_level": pb.LogSettingsRequest.SettingValue(string_param="1")},
        ),
    ),
    case(
        "log settings unknown",
        rpc("LogSettings", settings={"other": pb.LogSettingsRequest.SettingValue(bool_param=True)}),
        alone=True,
    ),
    case(
        "log file",
        rpc("LogSettings", settings={"log_file": pb.LogSettingsRequest.SettingValue(string_param="/tmp/x")}),
    ),
    case(
        "log format wrong",
        rpc("LogSettings", settings={"log_format": pb.LogSettingsRequest.SettingValue(string_param="x")}),
    ),
    *raw_of_each(),
    case(
        "strings raw with bytes of any kind",
        Rpc(
            "ModelInfer",
            pb.ModelInferRequest(
                model_name="every_type",
                inputs=[pb.ModelInferRequest.InferInputTensor(name="STRING", datatype="BYTES", shape=[2])],
                raw_input_contents=[strings(b"\x00", b"\xfe")],
            ),
        ),
    ),
]
