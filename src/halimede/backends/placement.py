"""Which GPUs the instances of a model may be placed on (`instance_group`), and what is missing where none are.

Told by the files of a framework, which is not imported: it is heavy, and may be to run in a process of its own.
"""

import logging
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from halimede.backends.registry import backend_name
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup

logger = logging.getLogger("halimede")

_ON_CPUS = {
    "dyna_sequence": "the backend dyna_sequence runs on CPUs only",
    "fil": "the backend fil runs forests on CPUs only",
    "identity": "the backend identity runs on CPUs only",
    "implicit_state": "the backend implicit_state runs on CPUs only",
    "openvino": "the backend openvino has no instances of that kind; say KIND_CPU, and choose one of OpenVINO's "
    "devices by the parameter TARGET_DEVICE",
    "openvino_genai": "the backend openvino_genai has no instances of that kind; say KIND_CPU, and choose one of "
    "OpenVINO's devices by the parameter TARGET_DEVICE",
    "repeat": "the backend repeat runs on CPUs only",
    "sequence": "the backend sequence runs on CPUs only",
    "square": "the backend square runs on CPUs only",
    "tensorflow": "the backend tensorflow runs on CPUs only",
}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where instances may be.

    Attributes:
        gpus: device numbers of the GPUs that the backend can use, as it is installed here.
        missing: why there are none; "" if there are some.
    """

    gpus: tuple[int, ...] = ()
    missing: str = ""


def placement(config: ModelConfig, gpus: tuple[int, ...]) -> Placement:
    """Where instances of the model may be; KIND_AUTO means KIND_GPU only where there are GPUs for it.

    Args:
        config: a configuration whose backend is filled in.
        gpus: device numbers of the GPUs that the server may use.
    """
    name = backend_name(config)
    if name in _ON_CPUS:
        return Placement(missing=_ON_CPUS[name])
    if not gpus:
        return Placement(
            missing="this server sees no NVIDIA GPU (nvidia-smi lists what the machine has, and "
            "CUDA_VISIBLE_DEVICES may hide some of it)"
        )
    # a backend that is none of these is written in Python, and its models choose their devices themselves
    missing = _MISSING.get(name, lambda: "")()
    return Placement(missing=missing) if missing else Placement(gpus)


def fall_back_to_cpus(config: ModelConfig, placed: Placement) -> None:
    """Place instance groups of KIND_GPU on CPUs, with a warning, if their backend can use no GPU (`--cpu-fallback`)."""
    if placed.gpus:
        return
    for index, group in enumerate(config.instance_group):
        if group.kind == ModelInstanceGroup.KIND_GPU:
            name = group.name or f"{config.name}_{index}"
            logger.warning(
                "instance group %s of model %s has kind KIND_GPU and runs on CPUs: %s",
                name,
                config.name,
                placed.missing,
            )
            group.kind = ModelInstanceGroup.KIND_CPU
            del group.gpus[:]


def _missing_onnxruntime() -> str:
    found = find_spec("onnxruntime")
    if found is None or found.origin is None:
        return ""  # the backend says how to install it
    directory = Path(found.origin).with_name("capi")
    if any(directory.glob("*onnxruntime_providers_cuda*")):
        return ""
    version = getattr(_module_at(directory / "build_and_package_info.py"), "__version__", "")
    installed = f"onnxruntime {version}".strip()
    return (
        f"the installed {installed} is a build for CPUs; install the package onnxruntime-gpu in place of "
        f"onnxruntime"
    )


def _missing_pytorch() -> str:
    found = find_spec("torch")
    if found is None or found.origin is None:
        return ""
    version = _module_at(Path(found.origin).with_name("version.py"))
    if version is None or version.cuda:
        return ""
    return f"the installed PyTorch {version.__version__} is a build for CPUs; install one for CUDA"


def _module_at(path: Path) -> Any:
    """A module that says of its package what that was built for, loaded without the package; None if there is none."""
    spec = spec_from_file_location(f"halimede_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MISSING: Final = {
    "onnxruntime": _missing_onnxruntime,
    "pytorch": _missing_pytorch,
    "transformers": _missing_pytorch,
}
"""Backend → what tells why its installation can use no GPU, "" if it can."""
