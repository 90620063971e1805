"""Ask for diagnoses and hold them against XGBoost: `python -m examples.xgboost_ensemble.client`.

The rows are those that the trees were not trained with.
"""

import argparse
import sys

import numpy as np
import tritonclient.http as triton
import xgboost

from examples.xgboost_ensemble.dataset import as_text, load
from examples.xgboost_ensemble.measurements import features

TOLERANCE = 1e-5
SHOWN = 5

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument(
    "--booster",
    default="build/xgboost-ensemble/models/trees/1/xgboost.ubj",
    help="the trees that the server has",
)
arguments = parser.parse_args()

data = load()
rows = np.array([[as_text(row).encode()] for row in data.test_rows], np.object_)
tensor = triton.InferInput("ROW", rows.shape, "BYTES")
tensor.set_data_from_numpy(rows)
with triton.InferenceServerClient(arguments.http) as client:
    answer = client.infer("diagnosis", [tensor])
labels = [label.decode() for label in answer.as_numpy("LABEL")[:, 0]]
confidences = answer.as_numpy("CONFIDENCE")[:, 0]

booster = xgboost.Booster(model_file=arguments.booster)
second = booster.predict(xgboost.DMatrix(features(data.test_rows)))  # the score of the second class
expected_labels = [data.labels[int(score > 0.5)] for score in second]
expected = np.maximum(second, 1 - second)

print("served                 xgboost                truth")
for index in range(SHOWN):
    served = f"{labels[index]:<10} {confidences[index]:.4f}"
    itself = f"{expected_labels[index]:<10} {expected[index]:.4f}"
    print(f"{served:<22} {itself:<22} {data.labels[data.test_classes[index]]}")

difference = float(np.abs(confidences - expected).max())
if labels != expected_labels or not difference <= TOLERANCE:
    sys.exit(
        f"wrong answer: {sum(map(str.__ne__, labels, expected_labels))} of {len(labels)} labels are not those of "
        f"XGBoost, and confidences are up to {difference:.1e} away from its own; {TOLERANCE} is allowed"
    )
right = sum(label == data.labels[one] for label, one in zip(labels, data.test_classes, strict=True))
print(f"{len(labels)} rows: labels and confidences are those of XGBoost; {right} labels are right")
