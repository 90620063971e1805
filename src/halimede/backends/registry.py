"""Which class opens a model: looked up by the configuration's backend, imported when first asked for."""

from halimede.backends.base import BackendModel
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError, UnsupportedError

PYTHON = "python"
"""The backend whose instances have processes of their own, which `workers` provides."""

BACKENDS = ("identity", "onnxruntime", PYTHON, "repeat", "square")
_PLATFORMS = {"onnxruntime_onnx": "onnxruntime"}


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
    match name:
        case "onnxruntime":
            return _onnxruntime()
        case "identity":
            from halimede.backends.identity import IdentityModel

            return IdentityModel
        case "repeat":
            from halimede.backends.repeat import RepeatModel

            return RepeatModel
        case "square":
            from halimede.backends.square import SquareModel

            return SquareModel
        case "ensemble":
            msg = f"Ensemble model '{config.name}' must have platform type 'ensemble' and empty backend type"
            raise InvalidArgumentError(msg)
    msg = (
        f"unable to find backend library for backend '{name}', try specifying runtime on the model "
        f"configuration. This version of Halimede has the backends {', '.join(BACKENDS)}."
    )
    raise InvalidArgumentError(msg)


def usable_gpus(config: ModelConfig, gpus: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `gpus` that the configuration's backend can use as it is installed here.

    KIND_AUTO means KIND_GPU only where there are any.
    """
    if not gpus or backend_name(config) != "onnxruntime":
        return ()
    try:
        from halimede.backends.onnx_providers import has_cuda
    except ModuleNotFoundError:
        return ()
    return gpus if has_cuda() else ()


def _onnxruntime() -> type[BackendModel]:
    try:
        from halimede.backends.onnxruntime import OnnxModel
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "onnxruntime":
            raise
        msg = 'the onnxruntime backend is not installed; install it with: pip install "halimede[onnx]"'
        raise UnsupportedError(msg) from error
    return OnnxModel
