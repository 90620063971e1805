"""Ask models that ask other models, over HTTP."""

import argparse

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
arguments = parser.parse_args()

inputs = [triton.InferInput(name, [4], "FP32") for name in ("INPUT0", "INPUT1")]
inputs[0].set_data_from_numpy(np.array([0.5, 1, 2, 4], np.float32))
inputs[1].set_data_from_numpy(np.array([1, 1, 2, 2], np.float32))
model_name = triton.InferInput("MODEL_NAME", [1], "BYTES")
number = triton.InferInput("IN", [1], "INT32")
number.set_data_from_numpy(np.array([7], np.int32))

with triton.InferenceServerClient(arguments.http) as client:
    for name in ("add_sub", "add_sub_layer", "undefined"):
        model_name.set_data_from_numpy(np.array([name.encode()], np.object_))
        try:
            result = client.infer("bls_sync", [model_name, *inputs])
            print(f"bls_sync, {name}: {result.as_numpy('OUTPUT0')} {result.as_numpy('OUTPUT1')}")
        except InferenceServerException as error:
            print(f"bls_sync, {name}: {error}")
    result = client.infer("bls_async", inputs)
    print(f"bls_async: {result.as_numpy('OUTPUT0')} {result.as_numpy('OUTPUT1')}")
    result = client.infer("bls_decoupled", [number])
    print(f"bls_decoupled: {result.as_numpy('OUT')}")
