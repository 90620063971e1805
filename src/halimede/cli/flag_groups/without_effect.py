"""Flags of tritonserver that are accepted, so that its commands work as they are, and do nothing here."""

from typing import Any, Final

from halimede.cli.settings import (
    BOOL,
    BYTES_OF_DEVICE,
    COUNT,
    FRACTION_OF_DEVICE,
    NUMBER,
    POSITIVE,
    Kind,
    Setting,
    form,
)

WITHOUT_EFFECT: Final = "Accepted without effect"

_ONE_LOOP: Final = (
    "one event loop serves all connections, and models run on threads and in separate processes; to use more cores "
    "for connections, set --front-ends"
)
_NO_POOL: Final = "memory is allocated for each request and freed when it is done"
_FRAMEWORKS: Final = "each framework manages GPU memory itself; see the parameters of its models"
_INT_MAX: Final = 2_147_483_647


def _ignored(
    name: str,
    kind: Kind[Any],
    default: Any,
    help: str,  # noqa: A002 - what it is called everywhere on a command line
    reason: str,
    *,
    repeatable: bool = False,
) -> Setting:
    return Setting(name, WITHOUT_EFFECT, kind, default, help, repeatable, reason=reason)


IGNORED: Final = (
    _ignored("http-thread-count", POSITIVE, 8, "Number of threads that serve HTTP.", _ONE_LOOP),
    _ignored("grpc-infer-thread-count", POSITIVE, 2, "Number of threads that serve gRPC.", _ONE_LOOP),
    _ignored("sagemaker-thread-count", POSITIVE, 8, "Number of threads that serve SageMaker.", _ONE_LOOP),
    _ignored("vertex-ai-thread-count", POSITIVE, 8, "Number of threads that serve Vertex AI.", _ONE_LOOP),
    _ignored(
        "buffer-manager-thread-count",
        COUNT,
        0,
        "Number of threads that gather batches.",
        "each instance gathers its own batches",
    ),
    _ignored("grpc-infer-allocation-pool-size", COUNT, 8, "Number of requests kept for reuse.", _NO_POOL),
    _ignored("grpc-max-response-pool-size", COUNT, _INT_MAX, "Number of responses kept for reuse.", _NO_POOL),
    _ignored(
        "cuda-memory-pool-byte-size",
        BYTES_OF_DEVICE,
        (),
        "Size of the memory pool of a GPU.",
        _FRAMEWORKS,
        repeatable=True,
    ),
    _ignored(
        "cuda-virtual-address-size",
        BYTES_OF_DEVICE,
        (),
        "Size of the virtual addresses for implicit state on a GPU.",
        _FRAMEWORKS,
        repeatable=True,
    ),
    _ignored(
        "model-load-gpu-limit",
        FRACTION_OF_DEVICE,
        (),
        "Share of a GPU's memory beyond which no model is loaded.",
        "a load fails only if its framework cannot allocate the memory",
        repeatable=True,
    ),
    _ignored(
        "min-supported-compute-capability",
        NUMBER,
        0.0,
        "Oldest CUDA compute capability of the GPUs to use.",
        "each framework refuses GPUs that it was not built for; CUDA_VISIBLE_DEVICES hides a GPU",
    ),
    _ignored(
        "enable-peer-access",
        BOOL,
        True,
        "Let GPUs access each other's memory.",
        "frameworks decide this themselves; the server copies nothing from GPU to GPU",
    ),
    _ignored(
        "cache-directory",
        form("DIRECTORY"),
        "",
        "Directory of response caches.",
        "the caches local and redis are built in; caches in shared libraries are not loaded",
    ),
)
