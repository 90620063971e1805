"""Regions of clients' shared memory: registered, listed, named by requests, unregistered."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.conformance.answers import Answer
from tests.conformance.asking import get, post, put, rpc
from tests.conformance.case import Case, case
from tests.conformance.differences import ANY_OFFSET, CONTENTS_OF_NO_INPUT, RESERVED_KEY, SMALL_MEMORY
from tests.conformance.servers import Setting
from tests.conformance.steps import Memory, Only, Placed, Rpc, Step

SHARED = Setting(models=("variable",), own_flags=("--allow-client-shm=true",))
SIZE = 64
LARGEST = (1 << 64) - 1
SYSTEM = "/v2/systemsharedmemory"
CUDA = "/v2/cudasharedmemory"
HANDLE = {"raw_handle": {"b64": "A" * 84 + "AA=="}, "device_id": 0, "byte_size": SIZE}


def keyed(make: Callable[[str], Step]) -> Placed:
    """A step with the key of the server's own memory, which answers show as <key>."""

    def with_key(repository: Path) -> Step:
        key = f"{repository.parents[1].name}-{repository.parent.name}"

        def without_key(answer: Answer) -> Answer:
            return {
                path: value.replace(key, "<key>") if isinstance(value, str) else value
                for path, value in answer.items()
            }

        return Only(make(key), without_key)

    return Placed(with_key)


MADE = keyed(lambda key: Memory(key, SIZE))
REMOVED = keyed(Memory)


def register(region: str, **members: Any) -> Placed:
    """A registration over HTTP, of the server's own memory unless another key is given."""
    return keyed(
        lambda key: post(f"{SYSTEM}/region/{region}/register", {"key": key, "byte_size": SIZE, **members})
    )


def register_rpc(region: str, **members: Any) -> Placed:
    """The same over gRPC."""
    return keyed(
        lambda key: rpc(
            "SystemSharedMemoryRegister", **{"name": region, "key": key, "byte_size": SIZE, **members}
        )
    )


def unregister(region: str = "") -> Step:
    """Unregister a region over HTTP; all without a name."""
    return post(f"{SYSTEM}{f'/region/{region}' if region else ''}/unregister")


def status(region: str = "") -> Placed:
    """The status over HTTP."""
    return keyed(lambda _: get(f"{SYSTEM}{f'/region/{region}' if region else ''}/status"))


def status_rpc(region: str = "") -> Placed:
    """The status over gRPC."""
    return keyed(lambda _: rpc("SystemSharedMemoryStatus", name=region))


def placed(region: Any, size: Any, offset: Any = None) -> dict[str, Any]:
    """Parameters of a tensor that say where it is; None for those that are left out."""
    named = {
        "shared_memory_region": region,
        "shared_memory_byte_size": size,
        "shared_memory_offset": offset,
    }
    return {name: value for name, value in named.items() if value is not None}


def infer(source: dict[str, Any], target: dict[str, Any] | None = None, **members: Any) -> Step:
    """An inference on 4 numbers of 8 bytes over HTTP."""
    tensor = {"name": "X", "datatype": "INT64", "shape": [1, 2, 2], "parameters": source, **members}
    output = {"name": "OUT", **({} if target is None else {"parameters": target})}
    return post("/v2/models/variable/infer", {"inputs": [tensor], "outputs": [output]})


def infer_rpc(
    source: dict[str, Any], target: dict[str, Any] | None = None, raw: Iterable[bytes] = ()
) -> Step:
    """The same over gRPC."""
    request = pb.ModelInferRequest(model_name="variable", raw_input_contents=raw)
    tensor = request.inputs.add(name="X", datatype="INT64", shape=[1, 2, 2])
    output = request.outputs.add(name="OUT")
    for parameters, values in ((tensor.parameters, source), (output.parameters, target or {})):
        for name, value in values.items():
            put(parameters, name, value)
    return Rpc("ModelInfer", request)


OWN = "of a key of Triton's own"
REGISTRATIONS: dict[str, dict[str, Any]] = {
    "of the whole": {},
    "of a part": {"offset": 16, "byte_size": 48},
    "of an odd part": {"offset": 3, "byte_size": 5},
    "of more than there is": {"byte_size": SIZE + 1},
    "beyond the end": {"offset": SIZE, "byte_size": 1},
    "across the end": {"offset": SIZE - 1, "byte_size": 2},
    "that overflows": {"offset": LARGEST, "byte_size": LARGEST},
    "that wraps around": {"offset": LARGEST, "byte_size": 2},
    "of unknown memory": {"key": "/conformance-nowhere"},
    "without a key": {"key": ""},
    "of a key of slashes": {"key": "//"},
    "of a key in a directory": {"key": "a/b"},
    OWN: {"key": "/triton_python_backend_shm_region_1"},
}
OFFSETS = ("of a part", "of an odd part", "that wraps around")
"""Of those, what begins where no page does."""
JSON_REGISTRATIONS: dict[str, Any] = {
    "no key": {"byte_size": SIZE},
    "no size": {"key": "x"},
    "a number as key": {"key": 1, "byte_size": SIZE},
    "a text as size": {"key": "x", "byte_size": "64"},
    "a negative size": {"key": "x", "byte_size": -1},
    "a negative offset": {"key": "x", "byte_size": 1, "offset": -1},
    "a fraction as size": {"key": "x", "byte_size": 1.5},
    "an array": [],
    "no JSON": "{",
    "nothing": "",
}
TENSORS: dict[str, dict[str, Any]] = {
    "all of it": placed("r", 32),
    "at an offset": placed("r", 32, 32),
    "unknown": placed("other", 32),
    "too large": placed("r", SIZE + 8),
    "across the end": placed("r", 32, 40),
    "beyond the end": placed("r", 32, SIZE + 1),
    "at the end": placed("r", 32, SIZE),
    "too small": placed("r", 24),
    "without a size": placed("r", None),
    "a number as region": placed(1, 32),
    "a text as size": placed("r", "32"),
    "a text as offset": placed("r", 32, "0"),
    "a negative size": placed("r", -32),
    "a negative offset": placed("r", 32, -8),
    "an offset that wraps around": placed("r", 32, (1 << 63) - 16),
}

CASES: list[Case] = [
    *(
        case(
            f"a registration {what} over {protocol}",
            MADE,
            make(f"reg{number}{protocol}", **members),
            shown(f"reg{number}{protocol}"),
            unregister(f"reg{number}{protocol}"),
            REMOVED,
            differs=ANY_OFFSET if what in OFFSETS else RESERVED_KEY if what == OWN else None,
            setting=SHARED,
            alone=True,
        )
        for number, (what, members) in enumerate(REGISTRATIONS.items())
        for protocol, make, shown in (("HTTP", register, status), ("gRPC", register_rpc, status_rpc))
    ),
    *(
        case(f"a registration with {what}", post(f"{SYSTEM}/region/json/register", body), setting=SHARED)
        for what, body in JSON_REGISTRATIONS.items()
    ),
    case(
        "a name that is taken",
        MADE,
        register("taken"),
        register("taken"),
        register_rpc("taken"),
        post(f"{CUDA}/region/taken/register", HANDLE),
        get(f"{CUDA}/region/taken/status"),
        unregister("taken"),
        status("taken"),
        status_rpc("taken"),
        register("taken"),
        unregister("taken"),
        unregister("taken"),
        rpc("SystemSharedMemoryUnregister", name="taken"),
        REMOVED,
        setting=SHARED,
        alone=True,
    ),
    case(
        "the status of all, and none left",
        MADE,
        unregister(),
        register("a"),
        register("b", offset=8, byte_size=8),
        status_rpc(),
        get(f"{CUDA}/status"),
        unregister(),
        status(),
        status_rpc(),
        rpc("CudaSharedMemoryStatus"),
        REMOVED,
        differs=ANY_OFFSET,
        setting=SHARED,
        alone=True,
    ),
    *(
        case(
            f"an input {what} over {protocol}",
            MADE,
            register("r"),
            make(parameters),
            unregister("r"),
            REMOVED,
            setting=SHARED,
            alone=True,
        )
        for what, parameters in TENSORS.items()
        for protocol, make in (("HTTP", infer), ("gRPC", infer_rpc))
    ),
    *(
        case(
            f"an output {what} over {protocol}",
            MADE,
            register("r"),
            make(placed("r", 32), parameters),
            unregister("r"),
            REMOVED,
            differs=SMALL_MEMORY if (what, protocol) == ("too small", "gRPC") else None,
            setting=SHARED,
            alone=True,
        )
        for what, parameters in TENSORS.items()
        for protocol, make in (("HTTP", infer), ("gRPC", infer_rpc))
    ),
    case(
        "a region and something else",
        MADE,
        register("r"),
        infer(placed("r", 32), data=[1, 2, 3, 4]),
        infer({**placed("r", 32), "binary_data_size": 32}),
        infer(placed("r", 32), {**placed("r", 32, 32), "binary_data": True}),
        infer(placed("r", 32), {**placed("r", 32, 32), "classification": 1}),
        infer_rpc(placed("r", 32), {**placed("r", 32, 32), "classification": 1}),
        infer_rpc(placed("r", 32), raw=[bytes(32)]),
        unregister("r"),
        REMOVED,
        differs=CONTENTS_OF_NO_INPUT,
        setting=SHARED,
        alone=True,
    ),
]
