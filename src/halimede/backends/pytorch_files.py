"""Which kind of PyTorch program a file is, by its content."""

import zipfile
from pathlib import Path, PurePosixPath

from halimede.backends.pytorch_exported import Exported
from halimede.backends.pytorch_program import TorchScript
from halimede.core.errors import InvalidArgumentError, UnsupportedError


def program_class(name: str, path: Path) -> type[TorchScript] | type[Exported]:
    """The class of programs that opens the file.

    Args:
        name: the model's, for errors.
        path: the file.

    Raises:
        InvalidArgumentError: it is none that PyTorch could serve.
        UnsupportedError: it is compiled code, which this backend does not run.
    """
    where = f"unable to load model '{name}': {path.name}"
    try:
        with zipfile.ZipFile(path) as archive:
            members = [PurePosixPath(member) for member in archive.namelist()]
            if min((member.header_offset for member in archive.infolist()), default=0):
                # an exported program has an archive inside, which is found where the end of the outer one is missing
                raise zipfile.BadZipFile("its directory is missing")
    except (zipfile.BadZipFile, OSError) as error:
        msg = (
            f"{where} is no PyTorch archive, or is cut off ({error}); expected a file that torch.jit.save or "
            f"torch.export.save has written"
        )
        raise InvalidArgumentError(msg) from error
    # everything is in one folder, whose name is that of the file when it was written
    inside = {str(PurePosixPath(*member.parts[1:])) for member in members}
    if any(member.startswith("data/aotinductor/") for member in inside):
        msg = (
            f"{where} is a package of AOTInductor, which this backend does not run yet; save the program that "
            f"it was compiled from with torch.export.save"
        )
        raise UnsupportedError(msg)
    if any(member.startswith("models/") or member == "serialized_exported_program.json" for member in inside):
        return Exported
    if "constants.pkl" in inside:
        return TorchScript
    if "data.pkl" in inside:
        msg = (
            f"{where} is a pickled module or its weights, as torch.save writes them; save the module with "
            f"torch.jit.save or torch.export.save instead"
        )
        raise InvalidArgumentError(msg)
    msg = f"{where} is an archive, but not of PyTorch; expected one that torch.jit.save or torch.export.save wrote"
    raise InvalidArgumentError(msg)
