from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError, NotFoundError
from halimede.engine.statistics import BatchStatistics
from halimede.frontends import descriptions
from tests.frontends.http.models import serve_models, write_repository


def test_extensions_stand_in_tritons_order_and_are_only_those_served() -> None:
    metadata = descriptions.server_metadata("me")
    assert metadata["name"] == "me"
    assert metadata["extensions"][:3] == ["classification", "sequence", "model_repository"]
    assert metadata["extensions"][-3:] == ["statistics", "trace", "logging"]
    assert {"system_shared_memory", "cuda_shared_memory"} <= set(metadata["extensions"])


def test_models_are_described(tmp_path: Path) -> None:
    write_repository(tmp_path)
    with serve_models(tmp_path, None, "echo", "strings") as server:
        lifecycle = server.engine.lifecycle
        strings = descriptions.model_metadata(lifecycle, "strings")
        assert strings["inputs"] == [{"name": "INPUT0", "datatype": "BYTES", "shape": [1]}]
        assert descriptions.model_metadata(lifecycle, "echo", 3)["versions"] == ["3"]
        with pytest.raises(NotFoundError):
            descriptions.model_metadata(lifecycle, "none")

        def found(name: str = "", version: int = -1) -> list[tuple[str, int]]:
            models = descriptions.models_for_statistics(lifecycle, name, version)
            return [(model.name, model.version) for model in models]

        assert found() == [("echo", 1), ("echo", 3), ("strings", 1)]
        assert found("echo") == [("echo", 1), ("echo", 3)]
        assert found("echo", 3) == [("echo", 3)]
        with pytest.raises(InvalidArgumentError, match="requested model 'none' is not available"):
            found("none")
        with pytest.raises(InvalidArgumentError, match="requested model version is not available for model"):
            found("echo", 2)


def test_statistics_have_the_fields_of_the_extension(tmp_path: Path) -> None:
    write_repository(tmp_path)
    with serve_models(tmp_path, None, "strings") as server:
        model = server.engine.find("strings")
        counts = model.statistics
        counts.last_inference_ms, counts.inference_count, counts.execution_count = 1234, 4, 1
        counts.success.add(9)
        counts.queue.add(5)
        batch = counts.batches[4] = BatchStatistics()
        batch.compute_input.add(1)
        batch.compute_infer.add(2)
        batch.compute_output.add(3)
        counts.count_response(0, None, 7, 0)
        document = descriptions.statistics(model)
    zero = {"count": 0, "ns": 0}
    assert document == {
        "name": "strings",
        "version": "1",
        "last_inference": 1234,
        "inference_count": 4,
        "execution_count": 1,
        "inference_stats": {
            "success": {"count": 1, "ns": 9},
            "fail": zero,
            "queue": {"count": 1, "ns": 5},
            "compute_input": zero,
            "compute_infer": zero,
            "compute_output": zero,
            "cache_hit": zero,
            "cache_miss": zero,
        },
        "batch_stats": [
            {
                "batch_size": 4,
                "compute_input": {"count": 1, "ns": 1},
                "compute_infer": {"count": 1, "ns": 2},
                "compute_output": {"count": 1, "ns": 3},
            }
        ],
        "memory_usage": [],
        "response_stats": {
            "0": {
                "compute_infer": {"count": 1, "ns": 7},
                "compute_output": zero,
                "success": zero,
                "fail": zero,
                "empty_response": {"count": 1, "ns": 7},
                "cancel": zero,
            }
        },
    }
