"""Which class opens a model: looked up by the configuration's backend, imported when first asked for."""

from collections.abc import Callable, Mapping
from typing import Final

from halimede.backends.base import BackendModel
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, UnsupportedError

PYTHON = "python"
"""The backend whose instances have processes of their own, which `workers` provides."""

LANGUAGE_BACKENDS = frozenset({"openvino_genai", "transformers", "vllm"})
"""Those that write texts."""

BACKENDS = (
    "dali",
    "dyna_sequence",
    "fil",
    "identity",
    "implicit_state",
    "onnxruntime",
    "openvino",
    "openvino_genai",
    PYTHON,
    "pytorch",
    "repeat",
    "sequence",
    "square",
    "tensorflow",
    "tensorrt",
    "transformers",
    "vllm",
)
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
}


def backend_name(config: ModelConfig) -> str:
    """The backend that the configuration names, by `backend` or by `platform`; "" for neither."""
    return config.backend or _PLATFORMS.get(config.platform, config.platform)


def backend_class(config: ModelConfig) -> type[BackendModel]:
    """The class that opens models of the configuration's backend.

    Raises:
        InvalidArgumentError: there is no such backend, or the model is an ensemble, which has none.
        UnsupportedError: the backend's framework is not installed.
    """
    # imported here, so that a server pays only for the frameworks that it uses
    name = backend_name(config)
    if name in _FRAMEWORKS:
        return _FRAMEWORKS[name]()
    match name:
        case "identity":
            from halimede.backends.testing.identity import IdentityModel

            return IdentityModel
        case "repeat":
            from halimede.backends.testing.repeat import RepeatModel

            return RepeatModel
        case "sequence":
            from halimede.backends.testing.sequence import SequenceModel

            return SequenceModel
        case "dyna_sequence":
            from halimede.backends.testing.dyna_sequence import DynaSequenceModel

            return DynaSequenceModel
        case "implicit_state":
            from halimede.backends.testing.implicit_state import ImplicitStateModel

            return ImplicitStateModel
        case "square":
            from halimede.backends.testing.square import SquareModel

            return SquareModel
        case "ensemble":
            msg = f"Ensemble model '{config.name}' must have platform type 'ensemble' and empty backend type"
            raise InvalidArgumentError(msg)
    msg = (
        f"unable to find backend library for backend '{name}', try specifying runtime on the model "
        f"configuration. This version of Halimede has the backends {', '.join(BACKENDS)}."
    )
    raise InvalidArgumentError(msg)


def _onnxruntime() -> type[BackendModel]:
    try:
        from halimede.backends.onnx.backend import OnnxModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "onnxruntime":
            raise
        msg = 'the onnxruntime backend is not installed; install it with: pip install "halimede[onnx]"'
        raise UnsupportedError(msg) from error
    return OnnxModel


def _openvino() -> type[BackendModel]:
    try:
        from halimede.backends.openvino.backend import OpenVinoModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "openvino":
            raise
        msg = 'the openvino backend is not installed; install it with: pip install "halimede[openvino]"'
        raise UnsupportedError(msg) from error
    return OpenVinoModel


def _dali() -> type[BackendModel]:
    try:
        from halimede.backends.dali.backend import DaliModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "nvidia":
            raise
        msg = 'the dali backend is not installed; install it with: pip install "halimede[dali]"'
        raise UnsupportedError(msg) from error
    return DaliModel


def _fil() -> type[BackendModel]:
    try:
        from halimede.backends.fil.backend import FilModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("onnx", "onnxruntime", "treelite"):
            raise
        msg = (
            f"the fil backend needs {error.name}, which is not installed; install it with: "
            f'pip install "halimede[fil]"'
        )
        raise UnsupportedError(msg) from error
    return FilModel


def _pytorch() -> type[BackendModel]:
    try:
        from halimede.backends.pytorch.backend import PyTorchModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "torch":
            raise
        msg = (
            'the pytorch backend is not installed; install it with: pip install "halimede[pytorch]" (on Linux that '
            "brings several gigabytes of CUDA; without a GPU, first install the build for CPUs: pip install torch "
            "--index-url with PyTorch's index of CPU builds)"
        )
        raise UnsupportedError(msg) from error
    return PyTorchModel


def _tensorflow() -> type[BackendModel]:
    try:
        from halimede.backends.tensorflow.backend import TensorFlowModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "tensorflow":
            raise
        msg = 'the tensorflow backend is not installed; install it with: pip install "halimede[tensorflow]"'
        raise UnsupportedError(msg) from error
    return TensorFlowModel


def _tensorrt() -> type[BackendModel]:
    try:
        from halimede.backends.tensorrt.backend import TensorRTModel
    except ModuleNotFoundError as error:
        packages = {"tensorrt": "tensorrt", "cuda": "cuda-python"}
        raise _missing("tensorrt", packages, error) from error
    return TensorRTModel


def _missing(backend: str, packages: Mapping[str, str], error: ModuleNotFoundError) -> UnsupportedError:
    """What is said of a backend whose module could not be imported.

    Args:
        backend: it, and the extra that brings what it needs.
        packages: modules that it needs → the packages that have them.
        error: of the import.

    Raises:
        ModuleNotFoundError: the error, if another module is missing.
    """
    package = packages.get((error.name or "").partition(".")[0])
    if package is None:
        raise error
    return UnsupportedError(
        f"the {backend} backend needs {package}, which is not installed; install it with: "
        f'pip install "halimede[{backend}]"'
    )


def _transformers() -> type[BackendModel]:
    try:
        from halimede.backends.transformers.backend import TransformersModel
    except ModuleNotFoundError as error:
        packages = {"torch": "torch", "transformers": "transformers"}
        raise _missing("transformers", packages, error) from error
    return TransformersModel


def _vllm() -> type[BackendModel]:
    try:
        from halimede.backends.vllm.backend import VllmModel
    except ModuleNotFoundError as error:
        raise _missing("vllm", {"vllm": "vllm"}, error) from error
    return VllmModel


def _openvino_genai() -> type[BackendModel]:
    try:
        from halimede.backends.openvino_genai.backend import GenAIModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("openvino", "openvino_genai"):
            raise
        msg = 'the openvino_genai backend is not installed; install it with: pip install "halimede[genai]"'
        raise UnsupportedError(msg) from error
    return GenAIModel


_FRAMEWORKS: Final[Mapping[str, Callable[[], type[BackendModel]]]] = {
    "dali": _dali,
    "fil": _fil,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "openvino_genai": _openvino_genai,
    "pytorch": _pytorch,
    "tensorflow": _tensorflow,
    "tensorrt": _tensorrt,
    "transformers": _transformers,
    "vllm": _vllm,
}
"""Backend → what imports its class."""
