"""Train the trees and write the repository: `python -m examples.xgboost_ensemble.build [DIRECTORY]`.

The models go to DIRECTORY/models, build/xgboost-ensemble/models by default.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import xgboost

from examples.xgboost_ensemble import measurements
from examples.xgboost_ensemble.dataset import SEED, Split, load

HERE = Path(__file__).parent
TREES = 100
SETTINGS = {"objective": "binary:logistic", "max_depth": 4, "eta": 0.1, "seed": SEED, "nthread": 1}


def train(data: Split) -> xgboost.Booster:
    """The trees."""
    matrix = xgboost.DMatrix(measurements.features(data.rows), data.classes)
    return xgboost.train(SETTINGS, matrix, TREES)


def build(directory: Path) -> str:
    """Write the models, anew; how well the trees do."""
    repository = directory / "models"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(HERE / "models", repository, ignore=shutil.ignore_patterns("__pycache__"))
    data = load()
    trees = train(data)
    shutil.copy(HERE / "measurements.py", repository / "preprocess" / "1")
    (repository / "trees" / "1").mkdir()
    trees.save_model(repository / "trees" / "1" / "xgboost.ubj")
    (repository / "postprocess" / "1" / "labels.txt").write_text("".join(f"{name}\n" for name in data.labels))
    (repository / "diagnosis" / "1").mkdir()

    scores = trees.predict(xgboost.DMatrix(measurements.features(data.test_rows)))
    right = int(np.sum((scores > 0.5) == data.test_classes))
    return f"{TREES} trees, trained with {len(data.rows)} rows, are right for {right} of {len(scores)} others"


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/xgboost-ensemble")
    print(build(directory))
    print(f"{directory / 'models'}: preprocess, trees, postprocess and the ensemble diagnosis")
