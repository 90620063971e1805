from pathlib import Path

from halimede.config.model_config_pb2 import ModelConfig
from halimede.engine.memory.footprints import FILES_FACTOR, WORKER_BYTES, Footprints, estimate
from halimede.repository.basis import Basis

BASIS = Basis(Path("/models/m"), (b"1", b"2"), b"config")
OTHER = Basis(Path("/models/m"), (b"1", b"3"), b"config")


def test_a_model_that_was_never_loaded_takes_what_its_files_suggest(tmp_path: Path) -> None:
    for file, size in (
        ("1/model.onnx", 1000),
        ("1/more/weights", 600),
        ("1/__pycache__/x", 99),
        ("2/model.onnx", 7),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(bytes(size))
    (tmp_path / "1" / "broken").symlink_to("nowhere")
    assert estimate(tmp_path, 1, ModelConfig(backend="onnxruntime")) == int(1600 * FILES_FACTOR)
    config = ModelConfig(backend="python")
    assert estimate(tmp_path, 1, config) == int(1600 * FILES_FACTOR) + WORKER_BYTES
    config.instance_group.add(count=2)
    config.instance_group.add(count=3)
    assert estimate(tmp_path, 1, config) == int(1600 * FILES_FACTOR) + 5 * WORKER_BYTES
    isolated = ModelConfig(backend="onnxruntime")
    isolated.parameters["isolation"].string_value = "process"
    isolated.instance_group.add(count=2)
    assert estimate(tmp_path, 1, isolated) == int(1600 * FILES_FACTOR) + 2 * WORKER_BYTES
    assert estimate(tmp_path, 3, ModelConfig()) == 0
    writer = ModelConfig(backend="openvino_genai")
    writer.parameters["cache_size"].string_value = "3"
    writer.instance_group.add(count=2)
    assert estimate(tmp_path, 3, writer) == 2 * (WORKER_BYTES + (3 << 30))


def test_what_a_model_took_is_expected_again_and_only_grows_by_more() -> None:
    footprints = Footprints()
    assert footprints.expected("m", 1, BASIS) is None
    for size, expected in ((100, 100), (80, 100), (120, 120)):
        footprints.took("m", 1, BASIS, size)
        assert footprints.expected("m", 1, BASIS) == expected


def test_other_files_versions_and_names_are_other_models() -> None:
    footprints = Footprints()
    footprints.took("m", 1, BASIS, 100)
    assert footprints.expected("m", 1, OTHER) is None
    assert footprints.expected("m", 2, BASIS) is None
    assert footprints.expected("n", 1, BASIS) is None
    footprints.took("m", 1, None, 100)
    footprints.gave_back("m", 1, None, 100)
    assert footprints.expected("m", 1, None) is None


def test_what_is_given_back_corrects_what_is_expected() -> None:
    footprints = Footprints()
    footprints.took("m", 1, BASIS, 100)
    footprints.gave_back("m", 1, BASIS, 60)
    assert footprints.expected("m", 1, BASIS) == 80
    footprints.gave_back("m", 1, BASIS, -20)
    assert footprints.expected("m", 1, BASIS) == 40
    footprints.gave_back("m", 1, BASIS, 90)
    assert footprints.expected("m", 1, BASIS) == 90


def test_only_the_models_that_were_loaded_lately_are_remembered() -> None:
    footprints = Footprints()
    for version in range(5000):
        footprints.took("m", version, BASIS, 1)
    assert footprints.expected("m", 0, BASIS) is None
    assert footprints.expected("m", 4999, BASIS) == 1
