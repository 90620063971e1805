"""Ask what pictures show, and hold the answers against TensorFlow: `python -m examples.inception_ensemble.client`.

The network's answer is held against that of Keras for the same pixels; the pixels, which DALI decodes and resizes,
against those that TensorFlow makes of the same file.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import tritonclient.http as triton

from examples.answers import difference, tensor
from examples.inception_ensemble.network import inception
from examples.inception_ensemble.pictures import files, pixels

GREY_LEVELS = 0.5
"""How far pixels may be from TensorFlow's on average, of 255: decoders and filters round differently."""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument("pictures", nargs="*", type=Path, default=files(), help="JPEG files")
arguments = parser.parse_args()

network = inception(np.stack([pixels(file.read_bytes()) for file in files()]))
farthest = 0.0
with triton.InferenceServerClient(arguments.http) as client:
    for picture in arguments.pictures:
        file = picture.read_bytes()
        sent = [tensor("FILE", np.frombuffer(file, np.uint8)[np.newaxis])]
        best = triton.InferRequestedOutput("PROBABILITIES", class_count=1)
        classes = client.infer("inception_ensemble", sent, outputs=[best]).as_numpy("PROBABILITIES")
        score, _, label = classes[0, 0].decode().split(":")
        probabilities = client.infer("inception_ensemble", sent).as_numpy("PROBABILITIES")
        decoded = client.infer("preprocess", sent).as_numpy("PIXELS")
        farthest = max(farthest, difference(probabilities, network(decoded, training=False).numpy()))
        levels = float(np.abs(decoded[0] - pixels(file)).mean()) * 127.5
        if not levels <= GREY_LEVELS:
            sys.exit(
                f"wrong pixels: those of {picture} are {levels:.2f} grey levels from TensorFlow's on average, "
                f"{GREY_LEVELS} are allowed"
            )
        print(
            f"{picture.name}: {label} {float(score):.4f}, pixels {levels:.2f} grey levels from TensorFlow's"
        )
print(
    f"{len(arguments.pictures)} pictures: probabilities are within {farthest:.1e} of Keras's for the same pixels"
)
