"""Train the network and write the repository: `python -m examples.iterative.build [DIRECTORY]`.

The model goes to DIRECTORY/models, build/iterative/models by default.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

from examples.iterative.network import STORY, train

HERE = Path(__file__).parent
STEPS = 600


def build(directory: Path, steps: int = STEPS) -> str:
    """Write the model, anew; how training went."""
    repository = directory / "models"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(HERE / "models", repository, ignore=shutil.ignore_patterns("__pycache__"))
    weights, characters, loss = train(STORY.read_text().strip(), steps)
    file = repository / "writer" / "1" / "weights.npz"
    np.savez(file, characters=np.array(characters), **weights)  # type: ignore[arg-type]  # as one of them were a flag
    size = sum(array.size for array in weights.values())
    return f"a recurrent network of {size} weights, {steps} steps, last loss {loss:.3f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("build/iterative"))
    parser.add_argument("--steps", type=int, default=STEPS, help="batches of training")
    arguments = parser.parse_args()
    print(build(arguments.directory, arguments.steps))
    print(f"{arguments.directory / 'models'}: writer")
