"""Write what a platform would put into a container: `python -m examples.sagemaker.build [DIRECTORY]`.

DIRECTORY, build/sagemaker by default, then stands for `/opt/ml`:

* `archives`: the models, packed as they would lie in a bucket: `digits` (ONNX), `add_sub` (Python) and `read_digit` (an
  ensemble, with a Python model and a `digits` of its own);
* `model`: `read_digit.tar.gz`, extracted as for a single-model endpoint;
* `models/KEY/model`: each of the archives, extracted as for a multi-model endpoint;
* `digit.json`, `digit.bin`: a picture of a seven, ready for curl and for `client.py`.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from examples.digits.build import build as build_digits

HERE = Path(__file__).parent
ADD_SUB = HERE.parent / "python" / "models" / "add_sub"


def build(directory: Path) -> None:
    """Write everything into the directory, anew."""
    shutil.rmtree(directory, ignore_errors=True)
    print(build_digits(directory / "sources"))
    # what is asked of the classifier alone is not what is asked of the ensemble
    request = json.loads((directory / "digit.json").read_text())
    (directory / "digit.json").write_text(json.dumps({"inputs": request["inputs"]}))
    digits, ensemble = directory / "sources" / "digits", directory / "sources" / "read_digit"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE / "models", ensemble, ignore=skipped)
    shutil.copytree(digits, ensemble / "digits")
    (ensemble / "read_digit" / "1").mkdir()
    add_sub = shutil.copytree(ADD_SUB, directory / "sources" / "add_sub", ignore=skipped)

    # a multi-model endpoint takes either layout, a single-model endpoint only that with a directory for each model
    (directory / "archives").mkdir()
    archives = [
        pack(digits, directory / "archives", "--flat"),
        pack(add_sub, directory / "archives"),
        pack(ensemble, directory / "archives"),
    ]
    extract(archives[-1], directory / "model")
    for archive in archives:
        extract(archive, directory / "models" / key_of(archive.name) / "model")


def pack(source: Path, directory: Path, *flags: str) -> Path:
    """The archive of a model's directory, or of a directory of models."""
    archive = directory / f"{source.name}.tar.gz"
    command = [sys.executable, "-m", "halimede", "pack", str(source), f"--output={archive}", *flags]
    subprocess.run(command, check=True)
    return archive


def extract(archive: Path, directory: Path) -> None:
    """Extract an archive, as the platform does."""
    directory.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # before Python 3.11.4 there is none
        tar.extractall(directory)


def key_of(target: str) -> str:
    """What the platform calls a model that its clients call `target`; the real one says nothing of how it is made."""
    return hashlib.md5(target.encode()).hexdigest()


if __name__ == "__main__":
    written = Path(sys.argv[1] if len(sys.argv) > 1 else "build/sagemaker")
    build(written)
    print(f"{written}: {', '.join(sorted(path.name for path in written.iterdir()))}")
