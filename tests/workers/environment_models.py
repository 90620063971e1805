"""Models with environments of their own, for tests."""

import io
import tarfile
import venv
import zipfile
from pathlib import Path

from halimede.backends.base import ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.workers.environments import PARAMETER


def model(directory: Path, name: str = "m", environment: str | Path | None = None) -> ModelSource:
    """Version 1 of a model in a directory of that name, which is made."""
    (directory / name / "1").mkdir(parents=True, exist_ok=True)
    config = ModelConfig(name=name)
    if environment is not None:
        config.parameters[PARAMETER].string_value = str(environment)
    return ModelSource(name, 1, directory / name, config)


def virtual_environment(directory: Path) -> Path:
    """A small virtual environment."""
    venv.create(directory, with_pip=False, symlinks=True)
    return directory


def pack(directory: Path, archive: Path, **more: str) -> Path:
    """An archive of a directory and of more files, given by path with `__` for `/`."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(directory, ".")
        for name, text in more.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", "-"))
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return archive


def wheel(directory: Path, name: str, version: str, source: str, requires: str = "") -> Path:
    """A wheel with one module."""
    path = directory / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    required = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", source)
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}"
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path
