import subprocess
import sys

import pytest

from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, UnsupportedError


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ModelConfig(backend="onnxruntime"), "OnnxModel"),
        (ModelConfig(platform="onnxruntime_onnx"), "OnnxModel"),
        (ModelConfig(platform="onnxruntime_onnx", backend="onnxruntime"), "OnnxModel"),
        (ModelConfig(backend="identity"), "IdentityModel"),
        (ModelConfig(backend="repeat"), "RepeatModel"),
        (ModelConfig(backend="square"), "SquareModel"),
        (ModelConfig(backend="sequence"), "SequenceModel"),
        (ModelConfig(backend="dyna_sequence"), "DynaSequenceModel"),
        (ModelConfig(backend="implicit_state"), "ImplicitStateModel"),
    ],
)
def test_backend_or_platform_chooses_the_class(config: ModelConfig, name: str) -> None:
    assert backend_class(config).__name__ == name


@pytest.mark.parametrize("backend", ["caffe2", "libtorch"])
def test_missing_backend_is_named_beside_those_that_are_there(backend: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        backend_class(ModelConfig(name="m", backend=backend))
    assert caught.value.message.startswith(
        f"unable to find backend library for backend '{backend}', "
        f"try specifying runtime on the model configuration."
    )
    names = "identity, implicit_state, onnxruntime, openvino, openvino_genai, python, pytorch, repeat, sequence, square"
    assert names in caught.value.message


def test_ensemble_has_a_platform_and_no_backend() -> None:
    with pytest.raises(InvalidArgumentError, match="must have platform type 'ensemble' and empty backend"):
        backend_class(ModelConfig(name="m", backend="ensemble"))


def test_without_onnxruntime_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("halimede.backends.onnx.backend", "halimede.backends.onnx.providers"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    config = ModelConfig(backend="onnxruntime")
    with pytest.raises(UnsupportedError, match=r'pip install "halimede\[onnx\]"'):
        backend_class(config)


def test_without_pytorch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("halimede.backends.pytorch")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    for config in (ModelConfig(backend="pytorch"), ModelConfig(platform="pytorch_libtorch")):
        with pytest.raises(UnsupportedError, match=r'pip install "halimede\[pytorch\]"') as caught:
            backend_class(config)
        # without a word, pip would bring CUDA to a machine that has no use for it
        assert "without a GPU, first install the build for CPUs" in caught.value.message


def test_without_dali_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "halimede.backends.dali.backend", raising=False)
    monkeypatch.setitem(sys.modules, "nvidia", None)
    with pytest.raises(UnsupportedError, match=r'pip install "halimede\[dali\]"'):
        backend_class(ModelConfig(backend="dali"))


def test_without_openvino_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("halimede.backends.openvino.backend", "halimede.backends.openvino.shapes"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UnsupportedError, match=r'pip install "halimede\[openvino\]"'):
        backend_class(ModelConfig(backend="openvino"))


def test_only_the_asked_for_framework_is_imported() -> None:
    code = (
        "import sys; from halimede.backends.registry import backend_class;"
        "from halimede.config.model_config_pb2 import ModelConfig;"
        "backend_class(ModelConfig(backend='identity')); assert 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_openvino_genai_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("halimede.backends.openvino_genai")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "openvino_genai", None)
    with pytest.raises(UnsupportedError, match=r'pip install "halimede\[genai\]"'):
        backend_class(ModelConfig(backend="openvino_genai"))


def test_without_vllm_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("halimede.backends.vllm")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UnsupportedError, match=r'needs vllm, .*pip install "halimede\[vllm\]"'):
        backend_class(ModelConfig(backend="vllm"))


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_transformers_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for module in [name for name in sys.modules if name.startswith("halimede.backends.transformers")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=rf'needs {package}, .*pip install "halimede\[transformers\]"'):
        backend_class(ModelConfig(backend="transformers"))
