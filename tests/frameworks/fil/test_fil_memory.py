"""Forests give their memory back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("treelite", reason="forests need treelite")
pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")

CYCLES = """
import ctypes, logging, sys
from pathlib import Path
import numpy as np
import treelite
import xgboost
from sklearn.ensemble import RandomForestRegressor
from halimede.backends.fil import TreeliteInstance
from halimede.backends.fil_xgboost import LEAST_ROWS, XgboostInstance
from halimede.backends.onnxruntime import OnnxInstance
from tests.frameworks.fil.fil_models import data, load_forest, predict

def resident_mb():
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

logging.disable()
directory, computed_by = Path(sys.argv[1]), sys.argv[2]
kind = {"onnx": OnnxInstance, "treelite": TreeliteInstance, "xgboost": XgboostInstance}[computed_by]
features, targets = np.nan_to_num(data("regression")[0]), data("regression")[1]
if computed_by == "xgboost":
    settings = {"max_depth": 8, "nthread": 1}
    save, name = xgboost.train(settings, xgboost.DMatrix(features, targets), 60).save_model, "xgboost.ubj"
else:
    if computed_by == "treelite":
        targets = np.stack([targets, -targets], axis=1)
    forest = RandomForestRegressor(6, random_state=0).fit(features, targets)
    save, name = treelite.sklearn.import_model(forest).serialize, "checkpoint.tl"
rows = np.resize(features, (LEAST_ROWS if computed_by == "xgboost" else 64, features.shape[1]))

def cycle():
    loaded = load_forest(directory, name, save)
    assert type(loaded.instance) is kind
    predict(loaded, rows)
    loaded.close()

for _ in range(10):
    cycle()
before = resident_mb()
for _ in range(100):
    cycle()
after = resident_mb()
size = (directory / "m" / "1" / name).stat().st_size / 2**20
print(before, after, size)
# a tenth of what would be left if nothing but the file's bytes stayed
assert size > 0.2, size
assert after - before < 10 * size, (before, after, size)
"""


@pytest.mark.parametrize("computed_by", ["onnx", "treelite", "xgboost"])
def test_memory_is_flat_over_100_loads(tmp_path: Path, computed_by: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CYCLES, str(tmp_path), computed_by],
        # freed blocks go back to the system at once, so that what is resident is in use
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"},
        cwd=Path(__file__).parents[3],
        timeout=100,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
