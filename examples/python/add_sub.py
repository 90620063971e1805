"""Ask the model `add_sub` over HTTP."""

import argparse

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
arguments = parser.parse_args()

first = np.array([0.5, 1, 2, 4], np.float32)
second = np.array([1, 1, 2, 2], np.float32)
inputs = [triton.InferInput(name, [4], "FP32") for name in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(first)
inputs[1].set_data_from_numpy(second)

with triton.InferenceServerClient(arguments.http) as client:
    result = client.infer("add_sub", inputs)
print(f"{first} + {second} = {result.as_numpy('OUTPUT0')}")
print(f"{first} - {second} = {result.as_numpy('OUTPUT1')}")
