"""What clients are told about the server and its models, as plain documents that HTTP and gRPC share.

Their fields are those of the JSON forms, which are the snake_case names of the gRPC messages.
"""

from typing import Any

import halimede
from halimede.config.signature import Signature, TensorSpec
from halimede.core.errors import InvalidArgumentError
from halimede.engine.lifecycle.lifecycle import Lifecycle
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import BatchStatistics, Duration, ResponseStatistics

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""The protocol's extensions that are served, in the order in which Triton lists them."""


def server_metadata(server_id: str) -> dict[str, Any]:
    """The server's name, version and extensions."""
    return {"name": server_id, "version": halimede.__version__, "extensions": list(EXTENSIONS)}


def model_metadata(lifecycle: Lifecycle, name: str, version: int = -1) -> dict[str, Any]:
    """A model's versions, platform, inputs and outputs; of the highest version that is ready for -1.

    Shapes are those that clients see, with -1 for the batch dimension.

    Raises:
        NotFoundError: no such model or version, or none is ready.
        UnavailableError: that version is not ready.
    """
    model = lifecycle.find(name, version)
    versions = lifecycle.versions(name) if version == -1 else [version]
    signature = model.signature
    return {
        "name": name,
        "versions": [str(number) for number in versions],
        "platform": model.config.platform or model.config.backend,
        "inputs": [_tensor(signature, spec) for spec in signature.inputs.values()],
        "outputs": [_tensor(signature, spec) for spec in signature.outputs.values()],
    }


def ready_models(lifecycle: Lifecycle) -> list[dict[str, Any]]:
    """The loaded models by name, each with its versions and platform; with its repository where names need one.

    Raises:
        UnavailableError: the server could not start.
    """
    lifecycle.check()
    found: dict[str, dict[str, Any]] = {}
    for model in lifecycle.loaded_models():
        platform = model.config.platform or model.config.backend
        row = found.setdefault(model.identifier, {"name": model.name, "versions": [], "platform": platform})
        row["versions"].append(str(model.version))
        namespace = model.identifier.removesuffix(model.name).removesuffix("::")
        if namespace:
            row["namespace"] = namespace
    return list(found.values())


def models_for_statistics(lifecycle: Lifecycle, name: str = "", version: int = -1) -> list[ServedModel]:
    """The loaded models that a request for statistics is about: all without a name, all versions for -1.

    Raises:
        InvalidArgumentError: there is none of that name or version.
        UnavailableError: the server could not start.
    """
    lifecycle.check()
    models = lifecycle.loaded_models()
    if not name:
        return models
    models = [model for model in models if model.name == name]
    if len({model.identifier for model in models}) != 1:
        raise InvalidArgumentError(f"requested model '{name}' is not available")
    if version != -1:
        models = [model for model in models if model.version == version]
        if not models:
            raise InvalidArgumentError(f"requested model version is not available for model '{name}'")
    return models


def statistics(model: ServedModel) -> dict[str, Any]:
    """All counts of one model version, under the names of the statistics extension."""
    counts = model.statistics
    return {
        "name": model.name,
        "version": str(model.version),
        "last_inference": counts.last_inference_ms,
        "inference_count": counts.inference_count,
        "execution_count": counts.execution_count,
        "inference_stats": {
            "success": _duration(counts.success),
            "fail": _duration(counts.fail),
            "queue": _duration(counts.queue),
            "compute_input": _duration(counts.compute_input),
            "compute_infer": _duration(counts.compute_infer),
            "compute_output": _duration(counts.compute_output),
            "cache_hit": _duration(counts.cache_hit),
            "cache_miss": _duration(counts.cache_miss),
        },
        "batch_stats": [_batch(size, batch) for size, batch in sorted(counts.batches.items())],
        "memory_usage": [],  # counted by backends that track their memory: none does
        "response_stats": {str(index): _response(each) for index, each in enumerate(counts.responses)},
    }


def _tensor(signature: Signature, spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype.name, "shape": signature.full_dims(spec)}


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}


def _response(counts: ResponseStatistics) -> dict[str, Any]:
    return {
        "compute_infer": _duration(counts.compute_infer),
        "compute_output": _duration(counts.compute_output),
        "success": _duration(counts.success),
        "fail": _duration(counts.fail),
        "empty_response": _duration(counts.empty_response),
        "cancel": _duration(counts.cancel),
    }


def _batch(size: int, batch: BatchStatistics) -> dict[str, Any]:
    return {
        "batch_size": size,
        "compute_input": _duration(batch.compute_input),
        "compute_infer": _duration(batch.compute_infer),
        "compute_output": _duration(batch.compute_output),
    }
