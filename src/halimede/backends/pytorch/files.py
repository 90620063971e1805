"""Which file a PyTorch model is, of which kind, and so whether it may run in the server's process.

Told by the names in the archive; nothing here imports PyTorch.
"""

import zipfile
from enum import Enum
from pathlib import Path, PurePosixPath

from halimede.backends.base import ModelSource
from halimede.backends.file_looks import ZIP, note
from halimede.backends.pytorch.compile import PARAMETER as COMPILE
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import hint
from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError

RUNTIME = "model.py"
"""The value of `runtime` that asks for a module of Python code, as in Triton's PyTorch backend."""


class Kind(Enum):
    """A kind of PyTorch model."""

    SCRIPT = "TorchScript"
    EXPORTED = "a program of torch.export"
    PACKAGE = "a package of AOTInductor"
    MODULE = "a module of Python code"


def needs_process(source: ModelSource) -> bool:
    """Whether the model runs in processes of its own unless it says otherwise.

    A module is any Python code. A package is native code that stays mapped when it is unloaded. `torch.compile` keeps
    what it has compiled for as long as the process lives.
    """
    if COMPILE in source.config.parameters:
        return True
    try:
        return file_kind(source.name, model_path(source)) in (Kind.MODULE, Kind.PACKAGE)
    except HalimedeError:  # the backend will say it
        return False


def model_path(source: ModelSource) -> Path:
    """The model's file.

    Raises:
        NotFoundError: it is not there.
    """
    config = source.config
    path = source.version_directory / (config.default_model_filename or _default_name(config))
    if config.runtime == RUNTIME and not path.is_file() and path.name == RUNTIME:
        path = path.with_name("model.pt")
    if not path.is_file():
        msg = (
            f"unable to load model '{source.name}': there is no file {path}; expected TorchScript (model.pt), a "
            f"program of torch.export or a package of AOTInductor (model.pt2), or a module (model.py) there. The "
            f"setting default_model_filename names another{hint(source.directory, 'pytorch')}"
        )
        raise NotFoundError(msg)
    return path


def file_kind(name: str, path: Path) -> Kind:
    """The kind of the file.

    Args:
        name: the model's, for errors.
        path: the file.

    Raises:
        InvalidArgumentError: it is none that PyTorch could serve.
    """
    if path.suffix == ".py":
        return Kind.MODULE
    where = f"unable to load model '{name}': {path.name}"
    try:
        with zipfile.ZipFile(path) as archive:
            members = [PurePosixPath(member) for member in archive.namelist()]
            if min((member.header_offset for member in archive.infolist()), default=0):
                # an exported program has an archive inside, which is found where the end of the outer one is missing
                raise zipfile.BadZipFile("its directory is missing")
    except (zipfile.BadZipFile, OSError) as error:
        msg = (
            f"{where} is no PyTorch archive, or is cut off ({error}); expected a file that torch.jit.save, "
            f"torch.export.save or torch._inductor.aoti_compile_and_package has written{note(path, usual=ZIP)}"
        )
        raise InvalidArgumentError(msg) from error
    # everything is in one folder, whose name is that of the file when it was written
    inside = {str(PurePosixPath(*member.parts[1:])) for member in members}
    if any(member.startswith("data/aotinductor/") for member in inside):
        return Kind.PACKAGE
    if any(member.startswith("models/") or member == "serialized_exported_program.json" for member in inside):
        return Kind.EXPORTED
    if "constants.pkl" in inside:
        return Kind.SCRIPT
    if "data.pkl" in inside:
        msg = (
            f"{where} is a pickled module or its weights, as torch.save writes them; save the module with "
            f"torch.jit.save or torch.export.save instead, or serve it from model.py, with the weights beside it "
            f'and `runtime: "{RUNTIME}"`'
        )
        raise InvalidArgumentError(msg)
    msg = f"{where} is an archive, but not of PyTorch; expected one that torch.jit.save or torch.export.save wrote"
    raise InvalidArgumentError(msg)


def _default_name(config: ModelConfig) -> str:
    if config.runtime == RUNTIME:
        return RUNTIME
    return "model.pt2" if config.platform == "torch_aoti" else "model.pt"
