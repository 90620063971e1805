"""Write the repository of the Inception ensemble: `python -m examples.inception_ensemble.build [DIRECTORY]`.

The models go to DIRECTORY/models, build/inception-ensemble/models by default.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import tensorflow
from tensorflow import keras
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from examples.inception_ensemble.network import inception
from examples.inception_ensemble.pictures import LABELS, SIZE, files, pixels

HERE = Path(__file__).parent


def frozen(network: keras.Model) -> bytes:
    """The network as a GraphDef, with its weights: tensor ``pixels`` to tensor ``probabilities``."""

    @tensorflow.function
    def run(images: tensorflow.Tensor) -> tensorflow.Tensor:
        return tensorflow.identity(network(images, training=False), name="probabilities")

    images = tensorflow.TensorSpec([None, SIZE, SIZE, 3], tensorflow.float32, name="pixels")
    constant = convert_variables_to_constants_v2(run.get_concrete_function(images))
    data: bytes = constant.graph.as_graph_def().SerializeToString()
    return data


def build(directory: Path) -> None:
    """Write the models, anew."""
    repository = directory / "models"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(HERE / "models", repository, ignore=shutil.ignore_patterns("__pycache__"))
    network = inception(np.stack([pixels(file.read_bytes()) for file in files()]))
    (repository / "inception" / "1").mkdir()
    (repository / "inception" / "1" / "model.graphdef").write_bytes(frozen(network))
    (repository / "inception" / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (repository / "inception_ensemble" / "1").mkdir()


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/inception-ensemble")
    build(directory)
    print(f"{directory / 'models'}: preprocess, inception and the ensemble inception_ensemble")
