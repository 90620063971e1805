"""Write the archives that the walk-throughs upload: `python -m examples.hosting.build [DIRECTORY]`.

DIRECTORY, build/hosting by default, then holds what `examples.sagemaker.build` writes; in `pictures.npz` the digits of
scikit-learn; and in `archives` three classifiers of digits for tests on an endpoint: `current.tar.gz`,
`candidate.tar.gz`, which has seen a few pictures only, and `faulty.tar.gz`, which comes up and fails at each picture.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from sklearn.datasets import load_digits

from examples.digits.build import to_onnx, train
from examples.hosting.pictures import NAME
from examples.sagemaker.build import build as build_archives
from examples.sagemaker.build import pack

SEEN = 50
"""How many pictures the candidate is trained on."""

FAULTY_CONFIG = """\
backend: "python"
input [{ name: "image" data_type: TYPE_UINT8 dims: [ -1, 8, 8 ] }]
output [{ name: "probabilities" data_type: TYPE_FP32 dims: [ -1, 10 ] }]
"""

FAULTY_MODEL = """\
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("the table of classes is missing")
"""


def build(directory: Path) -> None:
    """Write everything into the directory, anew."""
    build_archives(directory)
    digits = load_digits()
    images, targets = digits.images.astype(np.uint8), digits.target
    np.savez_compressed(directory / NAME, images=images, targets=targets)
    candidate = train(images[:SEEN], targets[:SEEN])
    for name in ("current", "candidate"):
        source = directory / "sources" / name
        shutil.copytree(directory / "sources" / "digits", source / "digits")
        if name == "candidate":
            onnx.save(to_onnx(candidate), source / "digits" / "1" / "model.onnx")
        pack(source, directory / "archives")
    faulty = directory / "sources" / "faulty"
    (faulty / "digits" / "1").mkdir(parents=True)
    (faulty / "digits" / "config.pbtxt").write_text(FAULTY_CONFIG)
    (faulty / "digits" / "1" / "model.py").write_text(FAULTY_MODEL)
    pack(faulty, directory / "archives")


if __name__ == "__main__":
    written = Path(sys.argv[1] if len(sys.argv) > 1 else "build/hosting")
    build(written)
    print(
        f"{written / 'archives'}: {', '.join(sorted(path.name for path in (written / 'archives').iterdir()))}"
    )
